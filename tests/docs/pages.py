# SPDX-License-Identifier: Apache-2.0
"""The blocks of code in the documents, with the documents' own directions for running them.

A block may have comments in front, which no reader sees::

    <!-- no-run: why it cannot run here -->
    <!-- needs: NAME -->          run only where that program or Python module is installed
    <!-- file: NAME -->           not run but written to that file, for the blocks behind it
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).parents[2]
_AT_THE_TOP: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES: Final = sorted([*(PROJECT / page for page in _AT_THE_TOP), *(PROJECT / "docs").rglob("*.md")])
#: What a newcomer begins with.
BY_NEWCOMERS: Final = [PROJECT / page for page in ("README.md", "docs/quickstart.md", "docs/guides/cuda-core.md")]
#: Pages whose commands are run again at the second start, and which use no folder outside of the one they are run in.
TYPED_AGAIN: Final = [
    *(PROJECT / page for page in ("README.md", "docs/quickstart.md", "docs/cli.md", "docs/daemon.md")),
    *(PROJECT / page for page in ("docs/eviction.md", "docs/operations/group-sharing.md")),
    *sorted((PROJECT / "docs" / "guides").glob("*.md")),
]

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$"
    r"|^<!-- (?P<mark>no-run|needs|file): (?P<value>.*?) -->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block: its place, its language, and the comments in front of it."""

    page: Path
    line: int
    language: str
    text: str
    no_run: str = ""
    needs: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """Returns the page's path in the project."""
    return page.relative_to(PROJECT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Yields every block of a page, in order."""
    text = page.read_text()
    marks: dict[str, str] = {}
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["mark"]:
            marks[match["mark"].replace("-", "_")] = match["value"]
        else:
            block = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            yield Block(page, line, match["language"].strip(), block, **marks)
            marks = {}


def load_script(script: str) -> Any:
    """Returns a script of ``docs/``, which is not a package, as a module."""
    spec = importlib.util.spec_from_file_location(script, PROJECT / "docs" / f"{script}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
