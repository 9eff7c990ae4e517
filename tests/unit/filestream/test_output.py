# SPDX-License-Identifier: Apache-2.0
"""A file that a user names: whole or not at all, whichever instruction an interrupt meets."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lockcache.errors import LockTimeoutError
from lockcache.filestream import output
from lockcache.filestream.disk import locks


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


def _replace_next_to(target: Path, work: Callable[[], object]) -> None:
    """Replace a file in a turn, in which something else happens."""
    with output.turn_to_replace(str(target), 0.0) as turn, output.open_output(str(target), turn=turn) as file:
        file.write(b"after")
        work()


def test_a_turn_whose_lock_file_was_deleted_replaces_nothing(tmp_path: Path) -> None:
    target = tmp_path / "warm"
    target.write_text("before")

    def give_another_one_a_turn() -> None:
        (tmp_path / ".warm.lock").unlink()
        with output.turn_to_replace(str(target), 0.0):
            pass

    with pytest.raises(LockTimeoutError, match="replaced meanwhile"):
        _replace_next_to(target, give_another_one_a_turn)
    assert target.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == [".warm.lock", "warm"]


@pytest.mark.parametrize("before", ["before", None])
def test_a_turn_replaces_nothing_that_another_host_put_there_meanwhile(tmp_path: Path, before: str | None) -> None:
    """On a mount whose locks are each host's own the lock file stays what it is."""
    target, theirs = tmp_path / "warm", tmp_path / "theirs"
    if before is not None:
        target.write_text(before)
    theirs.write_text("of another host")
    with pytest.raises(LockTimeoutError, match="replaced meanwhile"):
        _replace_next_to(target, lambda: theirs.rename(target))
    assert target.read_text() == "of another host"


def test_what_is_a_turns_own_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "warm"
    for content in (b"first", b"second"):
        with output.turn_to_replace(str(target), 0.0) as turn, output.open_output(str(target), turn=turn) as file:
            file.write(content)
    assert target.read_bytes() == b"second"
    assert stat.S_IMODE((tmp_path / ".warm.lock").stat().st_mode) == 0o600


def test_what_cannot_be_made_is_named_as_the_user_named_it(tmp_path: Path) -> None:
    target = str(tmp_path / "nowhere" / "warm")
    with pytest.raises(FileNotFoundError) as error, output.open_output(target):
        pass
    assert error.value.filename == target


def test_a_device_is_written_without_a_turn(tmp_path: Path) -> None:
    with output.turn_to_replace("/dev/null", 0.0) as turn, output.open_output("/dev/null", turn=turn) as file:
        file.write(b"nowhere")
    assert turn is None
    assert not os.path.lexists("/dev/.null.lock")


def test_where_locks_are_refused_only_who_needs_none_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are refused like on a Lustre mount without -o flock."""

    def refuse(fd: int, *, blocking: bool) -> bool:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(locks, "lock_descriptor", refuse)
    target = tmp_path / "warm"
    with pytest.raises(LockTimeoutError, match="refuses to lock"), output.turn_to_replace(str(target), 0.0):
        pass
    with (
        output.turn_to_replace(str(target), 0.0, needs_lock=False) as turn,
        output.open_output(str(target), turn=turn) as file,
    ):
        file.write(b"content")
    assert target.read_bytes() == b"content"


def test_a_lock_file_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".warm.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), output.turn_to_replace(str(tmp_path / "warm"), 0.0):
        pass
    assert not (tmp_path / "elsewhere").exists()
