# SPDX-License-Identifier: Apache-2.0
"""Follows a page of the documents as its reader would: runs its blocks in order, in one shell and one Python.

`python -m tests.docs.follow_page PAGE FOLDER` follows a page in an empty folder, with the lockcache of that Python. In
a folder that an earlier start left, it is the second start: the Python blocks are run again, on what the first ones
stored. A console block is a session that was typed once, with the numbers of the first time, except on the pages that a
newcomer types twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from lockcache_daemon.settings.sources import Sources
from tests.docs.console import Console, environment, steps
from tests.docs.pages import PROJECT, TYPED_AGAIN, Block, blocks

#: The folders that stand for folders of the machine.
_FOLDERS: Final = ("home/.config", "work", "scratch", "shared", "etc", "golden", "image", "var/lib")
_NOT_STATED: Final = ("LOCKCACHE_DIR", "LOCKCACHE_GROUP", "LOCKCACHE_SIGNING_KEY_FILE")


def follow_twice(python: str | Path, page: Path, root: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Start a page twice, in the same folder and home. Raises AssertionError where a start of it fails."""
    command = [python, "-W", "error", "-m", "tests.docs.follow_page", page, root]
    for start in ("first", "second"):
        ran = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{start} start:\n{ran.stdout}{ran.stderr}"


def follow(page: Path, root: Path) -> None:
    """Run a page's blocks. Changes this process's directory and variables. Raises where the page is wrong."""
    is_again = (root / "work").exists()
    for folder in _FOLDERS:
        (root / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(root / "work")
    variables = environment(root)
    os.environ.update(variables)
    for variable in _NOT_STATED:
        os.environ.pop(variable, None)
    console = Console(root, variables)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks(page):
            if _can_run(block) and not (is_again and _is_of_the_first_start(block)):
                _run(block, console, names, root)
    finally:
        console.close()


def _can_run(block: Block) -> bool:
    return not block.no_run and (not block.needs or bool(shutil.which(block.needs) or find_spec(block.needs)))


def _is_of_the_first_start(block: Block) -> bool:
    return block.language == "console" and block.page not in TYPED_AGAIN


def _run(block: Block, console: Console, names: dict[str, Any], root: Path) -> None:
    text = console.inside(block.text)
    if block.file:
        (root / "work" / console.inside(block.file)).write_text(text)
    elif block.language == "python":
        # Padded with lines, so that a traceback names the line of the page.
        exec(compile("\n" * block.line + text, str(block.page), "exec"), names)
    elif block.language == "console":
        for step in steps(block.text):
            try:
                console.run(step)
            except AssertionError as error:
                raise AssertionError(f"{block}: {error}") from error
    if block.language == "toml":
        config = root / "settings.toml"
        config.write_text(text)
        Sources({}, (), str(config), {}).load()
    elif block.language in ("yaml", "json"):
        import yaml

        assert list(yaml.safe_load_all(block.text))


if __name__ == "__main__":
    follow(Path(sys.argv[1]), Path(sys.argv[2]))
