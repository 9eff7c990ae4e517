# SPDX-License-Identifier: Apache-2.0
"""Base of all measurements: their directories, two caches side by side, interleaved timing, bars, lines of the result.

Two caches are timed in turns (A B A B ...), so that a machine that is busy for a while is busy for both. Medians are
reported; a bar is a ratio of two medians. A result proves only what the machine did while it was measured.

A shown number never contradicts its verdict: it is rounded so that it falls on the same side of the limit as the
measured number. Rounded to the nearest, 2.46 would be shown as "2.5x" next to ">= 2.5x" and NO.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from statistics import median
from typing import Any, Final, Literal, Protocol

from lockcache import FileStreamProgramCache

#: A small cubin.
VALUE_BYTES: Final = 16 * 1024
# From this number on values are shown without decimals.
_LARGE: Final = 100


@dataclass(frozen=True)
class Line:
    """One measured operation."""

    name: str
    ours: str = ""
    theirs: str = ""
    floor: str = ""
    #: The ratio of lockcache's time to that of the cache that the bar compares with.
    ratio: str = ""
    #: The condition that must hold; empty for a line that is only reported.
    bar: str = ""
    ok: bool = True
    #: The line as numbers, for ``--json``.
    numbers: dict[str, Any] | None = None
    #: Whether the bar is a time, which a busy machine can miss.
    is_time: bool = False
    #: The load average of the last minute, where a bar of time was missed.
    load: float | None = None
    #: The values of the caches that no bar compares with, by name.
    others: Mapping[str, str] = field(default_factory=dict)
    #: The reason why it could not be measured here; empty if it was measured.
    skipped: str = ""


class Attending(Protocol):
    """Puts daemons on directories, see :class:`~.daemon.Daemons`."""

    def attend(self, path: str, max_size_bytes: int | None) -> None: ...
    def attending(self, path: str, max_size_bytes: int | None) -> AbstractContextManager[None]: ...


@dataclass(frozen=True)
class Bench:
    """One run of measurements."""

    root: str
    quick: bool
    #: Called with the share of the work that is done, and with text about it.
    show: Callable[[float, str], None]
    #: The folder that keeps directories which take long to make for the next run; none by default.
    keep: str | None = None
    #: The daemons on every directory of lockcache's; none by default.
    daemons: Attending | None = None
    #: Whether a measurement may mount a file system of its own below ``root``: no directory was named.
    may_mount: bool = False

    def directory(self, name: str) -> str:
        """Make a new directory. Returns its path."""
        path = os.path.join(self.root, f"{name}-{time.monotonic_ns()}")
        os.mkdir(path, 0o700)
        return path

    def lockcache_directory(self, name: str) -> str:
        """Make a new directory of lockcache's. Returns its path."""
        path = self.directory(name)
        self.attend(path)
        return path

    def attend(self, path: str, max_size_bytes: int | None = None) -> None:
        """Have a daemon on a directory of lockcache's until the measurement ends, if this run has daemons."""
        if self.daemons is not None:
            self.daemons.attend(path, max_size_bytes)

    def attending(self, path: str, max_size_bytes: int | None = None) -> AbstractContextManager[None]:
        """Returns a context in which a daemon is on a directory of lockcache's, if this run has daemons."""
        return nullcontext() if self.daemons is None else self.daemons.attending(path, max_size_bytes)

    def kept_directory(self, name: str) -> str:
        """Returns a directory that an earlier run may have filled; a new one where nothing is kept."""
        if self.keep is None:
            return self.directory(name)
        path = os.path.join(self.keep, f"lockcache-bench-{name}" + ("-quick" if self.quick else ""))
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def pick(self, full: int, quick: int) -> int:
        """Returns the number of repetitions for this run."""
        return quick if self.quick else full


def open_lockcache(path: str, max_size_bytes: int | None = None) -> FileStreamProgramCache:
    """Open a cache of lockcache's."""
    return FileStreamProgramCache(path, max_size_bytes=max_size_bytes)


def shown(value: object, form: str) -> str:
    """Returns a cell: ``value`` in this format; empty without a value."""
    return "" if value is None else form.format(value)


def median_us(rounds: int, action: Callable[[], Any], after: Callable[[Any], object] = lambda result: None) -> float:
    """Returns the median time of a call. ``after`` gets the result of the call, and is not timed."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        result = action()
        times.append((time.perf_counter_ns() - began) / 1000)
        after(result)
    return median(times)


def interleaved(
    actions: Mapping[str, Callable[[], object] | None], rounds: int, calls: int, show: Callable[[float, str], None]
) -> dict[str, float]:
    """Returns the microseconds per call of each action: the median over rounds of the mean over calls."""
    present = {name: action for name, action in actions.items() if action is not None}
    times: dict[str, list[float]] = {name: [] for name in present}
    for number in range(rounds):
        for name, action in present.items():
            times[name].append(_mean_us(action, calls))
        show((number + 1) / rounds, "")
    return {name: median(found) for name, found in times.items()}


def ratio_line(
    name: str, times_us: Mapping[str, float], at_least: float | None, others_us: Mapping[str, float] | None = None
) -> Line:
    """Returns the line of the times under ``ours``, ``theirs`` and ``floor``.

    The bar is how many times faster than cuda.core lockcache must be; ``None`` for a line that is only reported.
    """
    others_us = others_us or {}
    ours, theirs, floor = times_us["ours"], times_us.get("theirs"), times_us.get("floor")
    ratio = None if theirs is None else theirs / ours
    judged = Bar(">=", at_least or 0.0, "x").in_ratio(ratio, " faster")
    return Line(
        name,
        ours=f"{ours:,.1f} us",
        theirs=shown(theirs, "{:,.1f} us"),
        floor=shown(floor, "{:,.1f} us"),
        **(judged if at_least is not None else {**judged, "bar": ""}),
        is_time=True,
        others={each: f"{taken:,.1f} us" for each, taken in others_us.items()},
        numbers={
            "ours_us": ours,
            "theirs_us": theirs,
            "floor_us": floor,
            "ratio": ratio,
            "others_us": dict(others_us),
        },
    )


def _mean_us(action: Callable[[], object], calls: int) -> float:
    began = time.perf_counter_ns()
    for _ in range(calls):
        action()
    return (time.perf_counter_ns() - began) / calls / 1000


@dataclass(frozen=True)
class Bar:
    """A limit for a number. ``limit`` has at most as many decimals as :meth:`show` is asked for."""

    side: Literal["<", "<=", ">="]
    limit: float
    #: The unit, which follows the number, with its space if it has one: "x", " ms".
    unit: str

    def __str__(self) -> str:
        return f"{self.side} {self.limit:,g}{self.unit}"

    def holds(self, value: float) -> bool:
        """Returns whether the measured value, not the shown one, is on the right side of the limit."""
        if self.side == ">=":
            return value >= self.limit
        return value < self.limit if self.side == "<" else value <= self.limit

    def judged(self, value: float | None) -> dict[str, Any]:
        """Returns a line's bar and verdict; nothing where there is no value to compare with."""
        return {} if value is None else {"bar": str(self), "ok": self.holds(value)}

    def in_ratio(self, ratio: float | None, words: str = "") -> dict[str, Any]:
        """Returns bar and verdict of a ratio, and the ratio's text, followed by ``words``."""
        return {} if ratio is None else {"ratio": f"{self.show(ratio)}{words}", **self.judged(ratio)}

    def show(self, value: float, decimals: int = 2) -> str:
        """Returns ``value`` with its unit, rounded so that the text holds exactly if ``value`` does."""
        kept = 0 if abs(value) >= _LARGE else decimals
        # Rounds up only where the limit itself is allowed: next to "<= 2" a number below 2 may be shown as 2, next to
        # "< 2" it must not.
        rounding = ROUND_CEILING if self.side == "<=" else ROUND_FLOOR
        # From the shortest text of the float, because 2.3 is a little less than 2.30 as a float.
        return f"{Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-kept), rounding):,f}{self.unit}"
