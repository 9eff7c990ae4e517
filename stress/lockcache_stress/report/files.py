# SPDX-License-Identifier: Apache-2.0
"""The files of a report: checked before the run, and each replaced as a whole after the run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Callable
from typing import Any, Final

from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.report.content import Written
from lockcache_stress.report.terminal import print_tabled

_MODE: Final = 0o644


_Make = Callable[[Written], bytes]


class Files:
    """The paths of the report, the results for CI, the numbers and a picture of them; each may be ``None``.

    Raises :class:`UnusableError` at once if a library is missing, or no file can be made there.
    """

    def __init__(
        self,
        report: str | None = None,
        junit: str | None = None,
        *,
        numbers: str | None = None,
        svg: str | None = None,
        out: tuple[str, str] | None = None,
    ) -> None:
        """``out``: a folder to make, and the name in it of the files that can be made without matplotlib."""
        asked: list[tuple[str, str | None, Callable[[], _Make]]] = [
            ("--report", report, _page_maker),
            ("--junit", junit, _junit_maker),
            ("--json-file", numbers, lambda: _as_json),
            ("--svg", svg, _picture_maker),
        ]
        if out is not None:
            asked += _in_folder(*out)
        self._makers: dict[str, _Make] = {}
        for option, given, find in asked:
            if given is None:
                continue
            path = _free(given, option)
            if path in self._makers:
                raise UnusableError(f"{option} {given}: another file goes there already; name another one")
            try:
                self._makers[path] = find()
            except ImportError as error:
                missing = error.name.partition(".")[0] if error.name else error
                raise UnusableError(f"{option} needs {missing}: {how_to_install('report')}") from error

    @property
    def paths(self) -> list[str]:
        """The paths of all files of the report."""
        return list(self._makers)

    def write(self, written: Written) -> None:
        """Write the files. Raises :class:`OSError`, such as for a full disk; then an older file is unchanged."""
        for path, make in self._makers.items():
            _replace(path, make(written))


def _page_maker() -> _Make:
    from lockcache_stress.report.page import render_page
    from lockcache_stress.report.plots import draw_outcome

    # A name in another encoding has lone surrogates, which are written as escapes, since they cannot be encoded.
    return lambda written: render_page(written, draw_outcome).encode("utf-8", "backslashreplace")


def _plain_page_maker() -> _Make:
    """Returns a function that makes a page, with plots if matplotlib is installed."""
    from lockcache_stress.report.page import render_page

    try:
        return _page_maker()
    except ImportError:
        return lambda written: render_page(written).encode("utf-8", "backslashreplace")


def _junit_maker() -> _Make:
    from lockcache_stress.report.junit import render_junit

    return lambda written: render_junit(written).encode()


def _picture_maker() -> _Make:
    from lockcache_stress.report.plots import fleet_svg, orders_svg

    def make(written: Written) -> bytes:
        numbers = written.numbers or {}
        return (orders_svg(numbers["traces"]) if "traces" in numbers else fleet_svg(numbers["starts"])).encode()

    return make


def _as_json(written: Written) -> bytes:
    found: Any = [ran.outcome.as_json() for ran in written.runs]
    if written.numbers is not None:
        found = {"ok": written.ok, "cut_short": written.cut_short, **written.numbers}
    elif len(found) == 1:
        found = found[0]
    return (json.dumps(found, indent=2) + "\n").encode()


def _in_folder(folder: str, name: str) -> list[tuple[str, str | None, Callable[[], _Make]]]:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UnusableError(f"--out {folder}: no folder can be made there ({error.strerror})") from error
    makers = {"txt": lambda: _as_text, "json": lambda: _as_json, "html": _plain_page_maker, "xml": _junit_maker}
    return [("--out", os.path.join(folder, f"{name}.{ending}"), find) for ending, find in makers.items()]


def _as_text(written: Written) -> bytes:
    """Returns the text that the terminal shows."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_tabled(written)
    return printed.getvalue().encode("utf-8", "backslashreplace")


def _free(path: str, option: str) -> str:
    """Returns the absolute path, after a check that a file can be made there."""
    whole = os.path.abspath(path)
    try:
        if not _may_be_replaced(whole):
            raise UnusableError(f"{option} {path}: is not a regular file; name a file that may be replaced")
        with tempfile.TemporaryFile(dir=os.path.dirname(whole)):
            return whole
    except OSError as error:
        raise UnusableError(f"{option} {path}: no file can be made there ({error.strerror})") from error


def _may_be_replaced(path: str) -> bool:
    """Returns whether the path is free, a file, or a link, which is not followed; not for a device or a FIFO."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _replace(path: str, data: bytes) -> None:
    fd, staged = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".lockcache-stress-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, _MODE)
        os.replace(staged, path)
    except BaseException:
        os.unlink(staged)
        raise
