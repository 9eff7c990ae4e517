# SPDX-License-Identifier: Apache-2.0
"""Seals in tests: each ends with its test, and what it reports is collected."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lockcache
from lockcache.serving import compilations
from lockcache.serving.state import Watch, watch

_OWN = str(Path(lockcache.__file__).parent)


@contextlib.contextmanager
def unsealed_process() -> Iterator[None]:
    """A block that begins, and leaves, as a process in which nobody has said anything of a seal."""
    new = Watch()
    before = {name: getattr(watch, name) for name in vars(new)}
    vars(watch).update(vars(new))
    compilations._refused.clear()
    try:
        yield
    finally:
        vars(watch).update(before)


def reports(caplog: Any) -> list[dict[str, Any]]:
    """Returns what was reported of each compilation."""
    found = [record.compilation for record in caplog.records if hasattr(record, "compilation")]
    caplog.clear()
    return found


def calls_of(action: Callable[[], object]) -> list[str]:
    """Returns the functions of lockcache that ``action`` calls, in their order."""
    found: list[str] = []

    def note(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_OWN):
            found.append(f"{os.path.relpath(code.co_filename, _OWN)}: {code.co_name}")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def logging_all(caplog: Any) -> None:
    """Have ``caplog`` take all that lockcache logs."""
    caplog.set_level(logging.DEBUG, "lockcache")
