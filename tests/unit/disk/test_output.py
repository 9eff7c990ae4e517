"""A file that a user names: whole or not at all, whichever instruction an interrupt meets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lockcache.filestream.disk import output


class Interrupt(BaseException):
    pass


# A file whose opening was interrupted is closed by the collector, which is all that can be had.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("at", range(40))
def test_an_interrupt_in_front_of_any_line_leaves_what_was_there(at: int, tmp_path: Path) -> None:
    target = tmp_path / "warm"
    target.write_text("before")
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != output.__file__:
            return None
        # Cleaning up is not interrupted once more.
        if event == "line" and sys.exc_info()[0] is None:
            seen += 1
            if seen == at + 1:
                raise Interrupt
        return trace

    interrupted = False
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with output.open_output(str(target)) as file:
            file.write(b"after")
    except Interrupt:
        interrupted = True
    finally:
        sys.settrace(before)
    assert os.listdir(tmp_path) == ["warm"]
    assert target.read_text() in (("before", "after") if interrupted else ("after",))
