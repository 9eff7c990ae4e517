"""The examples of docs/cli.md are run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.layout import entry_name
from tests.cli.running import LOCKCACHE

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


def test_there_are_examples_of_each_command_that_looks_removes_or_rules() -> None:
    shown = {line.split()[1] for line in EXAMPLES}
    assert shown >= {"stats", "ls", "inspect", "top", "evict", "clear", "policy", "completion"}


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_runs(line: str, tmp_path: Path) -> None:
    for root in (tmp_path / "default", tmp_path / "scratch"):
        with FileStreamProgramCache(root) as cache:
            cache.put_entry("scale", Entry(b"code", {"kind": "cubin", "arch": "sm_90", "compiler": "nvrtc 12.4"}))
        name = entry_name(b"scale")
        os.utime(root / "entries" / name[:2] / name[2:], ns=(10**18, 10**18))
    command = line.replace("/scratch/kernels", str(tmp_path / "scratch")).replace("3f2a9c41", entry_name(b"scale")[:8])
    environment = {
        **os.environ,
        "PATH": f"{Path(LOCKCACHE).parent}:{os.environ['PATH']}",
        "LOCKCACHE_DIR": str(tmp_path / "default"),
    }
    ended = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout or "clear" in line or "set" in line
