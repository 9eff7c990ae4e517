# SPDX-License-Identifier: Apache-2.0
"""The end of runs: prints the verdict, writes the files, chooses the exit code."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from lockcache_stress.gpu import describe_machine
from lockcache_stress.report.content import Written
from lockcache_stress.report.files import Files
from lockcache_stress.report.terminal import print_written

_NOT_WRITTEN: Final = 2


@dataclass
class Finished:
    """The end of a run."""

    code: int = 0


@contextmanager
def finishing(
    make: Callable[[], Written],
    show: Callable[[Written], None],
    files: Files,
    done: Callable[[], str],
    *,
    as_json: bool,
) -> Iterator[Finished]:
    """Print and write, at the end of the block, what ``make`` returns by then.

    An exception that ends the block early (Ctrl-C, a scenario that cannot be run) is raised again after the files have
    the results until then, with how much was done (``done``, in words), so that a run of a night that is interrupted
    does not lose its results.
    """
    finished = Finished()
    try:
        yield finished
    except BaseException as error:
        if files.paths and make().runs:
            why = f"ended by {type(error).__name__} after {done()} {error}".rstrip()
            _leave(files, replace(_on_machine(make(), files), cut_short=why), as_json=as_json)
        raise
    written = make()
    show(written)
    finished.code = _leave(files, _on_machine(written, files), as_json=as_json)


def _leave(files: Files, written: Written, *, as_json: bool) -> int:
    """Write the files.

    Returns the exit code. A file that cannot be written is an error of its own, and does not hide the verdict.
    """
    code = 0 if written.ok else 1
    try:
        files.write(written)
    except OSError as error:
        print(f"lockcache-stress: not written: {error.filename or ', '.join(files.paths)}: {error}", file=sys.stderr)
        return code or _NOT_WRITTEN
    if not as_json:
        print_written(files.paths)
    return code


def _on_machine(written: Written, files: Files) -> Written:
    """Returns ``written`` with the machine on which it ran, unless it has that already."""
    if written.machine or not files.paths:
        return written
    return replace(written, machine=describe_machine(tempfile.gettempdir()))
