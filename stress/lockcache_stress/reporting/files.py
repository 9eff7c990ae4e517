"""The files that were asked for: looked at before the run, and put in their place as wholes behind it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from typing import Final

from lockcache_stress.errors import UnusableError
from lockcache_stress.reporting.written import Written

__all__ = ["Files"]

_EXTRA: Final = "pip install 'lockcache[report]'"
_MODE: Final = 0o644


class Files:
    """Where the report goes, and where the results for CI; either may be ``None``.

    Raises :class:`UnusableError` at once if a library is missing, or no file can be made there.
    """

    def __init__(self, report: str | None, junit: str | None) -> None:
        self._makers: dict[str, Callable[[Written], str]] = {}
        if report is not None:
            self._makers[_free(report, "--report")] = _page_maker()
        if junit is not None:
            path = _free(junit, "--junit")
            if path in self._makers:
                raise UnusableError(f"--junit {junit}: the report goes there already; name another file")
            self._makers[path] = _junit_maker()

    @property
    def paths(self) -> list[str]:
        """Of all files that are asked for."""
        return list(self._makers)

    def write(self, written: Written) -> None:
        """Make them. Raises :class:`OSError` (a full disk, say); an older file is then what it was."""
        for path, make in self._makers.items():
            _replace(path, make(written))


def _page_maker() -> Callable[[Written], str]:
    try:
        from lockcache_stress.reporting.page import render_page
    except ImportError as error:
        raise UnusableError(f"--report needs {error.name or error}: {_EXTRA}") from error
    return render_page


def _junit_maker() -> Callable[[Written], str]:
    try:
        from lockcache_stress.reporting.junit import render_junit
    except ImportError as error:
        raise UnusableError(f"--junit needs {error.name or error}: {_EXTRA}") from error
    return render_junit


def _free(path: str, option: str) -> str:
    """The path made absolute, once it is sure that a file can be put there."""
    whole = os.path.abspath(path)
    try:
        if not _may_be_replaced(whole):
            raise UnusableError(f"{option} {path}: is no regular file; name a file that may be replaced")
        with tempfile.TemporaryFile(dir=os.path.dirname(whole)):
            return whole
    except OSError as error:
        raise UnusableError(f"{option} {path}: no file can be made there ({error.strerror})") from error


def _may_be_replaced(path: str) -> bool:
    """Nothing, a file, or a link, which is not followed. A device or a FIFO made a file is what nobody wants."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _replace(path: str, text: str) -> None:
    # A name in another encoding came to us as lone surrogates: shown as escapes, not the end of the report.
    data = text.encode("utf-8", "backslashreplace")
    fd, staged = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".lockcache-stress-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, _MODE)
        os.replace(staged, path)
    except BaseException:
        os.unlink(staged)
        raise
