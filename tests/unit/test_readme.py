"""The README's example is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.cuda
def test_the_examples_in_the_readme_run_and_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 2
    monkeypatch.chdir(tmp_path)
    for example in examples:
        exec(compile(example, str(README), "exec"), {})
    assert list((tmp_path / "kernels" / "entries").glob("*/*"))
