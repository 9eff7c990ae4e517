# SPDX-License-Identifier: Apache-2.0
"""The deployment files of this package: their names, their text, and units that start this installation."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

#: The folder where the deployment files are installed.
FOLDER: Final = Path(__file__).parent

_PROGRAM: Final = "lockcache-daemon"


def deployment_files() -> list[str]:
    """Returns the names of the files, such as ``systemd/lockcache.toml``."""
    names = (path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
    return sorted(name for name in names if "/" in name and "__pycache__" not in name)


def read_file(name: str) -> str:
    """Returns the text of a file. Raises :class:`ValueError` naming it."""
    if name not in deployment_files():
        raise ValueError(f"there is no file {name!r}; lockcache-daemon files lists the files")
    return (FOLDER / name).read_text()


def systemd_unit(*, user: bool) -> str:
    """Returns the system's unit, or a user's own, which starts this installation of the daemon."""
    text = read_file(f"systemd/{_PROGRAM}-user.service" if user else f"systemd/{_PROGRAM}.service")
    command = " ".join(map(_quoted, _command()))
    return re.sub(r"(?m)^ExecStart=\S+", lambda _: f"ExecStart={command}", text)


def _command() -> list[str]:
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) == _PROGRAM and os.access(script, os.X_OK):
        return [script]
    return [sys.executable, "-m", "lockcache_daemon"]


def _quoted(word: str) -> str:
    """Quote one word for systemd: % begins a specifier, $ a variable, and quotes and spaces end a word."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped) else f'"{escaped}"'
