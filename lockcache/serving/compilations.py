# SPDX-License-Identifier: Apache-2.0
"""Compilations of a sealed process: each is reported once, or refused.

Decides the report's words, and when it is made: behind the store, so that nobody who waits for the program waits for
the report. Keeps invariant 7 (never take the job down): a compilation is refused only where the program asked for
``error``. Not promised: the end of a compilation in a process that dies during it.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from lockcache.errors import SealedError
from lockcache.explain import key_in_words, statement_of
from lockcache.serving.callers import callers
from lockcache.serving.state import Missed, Sealed, watch
from lockcache.single_flight import Turn
from lockcache.sizes import printable

__all__ = ["compiled_unshared", "compiling", "refuse", "stored", "unawaited", "watched"]

_log = logging.getLogger("lockcache")

_Entry = TypeVar("_Entry")

_LEVELS: Final = {"log": logging.INFO, "warn": logging.WARNING, "error": logging.WARNING}
# The digits of an entry's name that are shown, as `lockcache why` does.
_NAME: Final = 12
# Refused programs whose explanations are kept: a program may ask for one again with each request that it serves.
_MOST_REFUSED: Final = 256


class _Cache(Protocol):
    def _missed(self, key: bytes) -> Missed | None: ...


class _Compilation:
    """One compilation of a sealed process."""

    def __init__(self, missed: Missed | None, label: str, sealed: Sealed, why: str = "") -> None:
        self._missed, self._sealed, self._why = missed, sealed, why
        self._label = label
        self._callers = callers()
        self._began = time.monotonic()
        self._is_reported = False
        if missed is not None and sealed.misses:
            missed.list_in(sealed.misses)

    @property
    def is_refused(self) -> bool:
        """Whether it must not be."""
        return self._sealed.mode == "error"

    @property
    def _name(self) -> str:
        return "" if self._missed is None else self._missed.name

    @property
    def _in_words(self) -> str:
        label = printable(self._label) or "a program"
        return f"{label} ({self._name[:_NAME]})" if self._name else label

    def refusal(self, verb: str = "would be") -> SealedError:
        """Returns the error of a compilation that is refused, and logs it: some frameworks catch all errors."""
        # Where no entry is named, the line itself is what may not come again.
        asked = self._name or f"{self._in_words} {self._why} {self._callers}"
        known = _refused.get(asked)
        why = self._explain() if known is None else known
        message = f"this process is sealed, and {self._in_words} {verb} compiled{why and ': '}{why}"
        _log.log(logging.WARNING if known is None else logging.DEBUG, "%s; called by %s", message, self._callers)
        if len(_refused) >= _MOST_REFUSED:
            _refused.clear()
        _refused[asked] = why
        return SealedError(message, self._name)

    def report(self, seconds: float | None, what: str = "", *, explains: bool = True) -> None:
        """Report the compilation, which is over, unless that was done."""
        if self._is_reported:
            return
        self._is_reported = True
        why = self._explain() if explains else ""
        took = "" if seconds is None else f", {seconds:.2f} s"
        _log.log(
            _LEVELS[self._sealed.mode],
            "compiled while sealed: %s%s%s%s; called by %s",
            self._in_words,
            took,
            what and f", {what}",
            why and f": {why}",
            self._callers,
            extra={
                "compilation": {
                    "label": self._label,
                    "name": self._name,
                    "seconds": seconds,
                    "why": why,
                    "callers": self._callers,
                }
            },
        )

    def report_unstored(self, *, explains: bool = True) -> None:
        """Report a compilation whose result was not stored here."""
        self.report(time.monotonic() - self._began, "not stored", explains=explains)

    def follow(self, turn: Turn[Any]) -> None:
        """Report the compilation when its turn ends, in whatever way."""
        publish, end = turn._publish, turn._end

        def publish_and_report(value: object, cost_ns: int) -> Any:
            entry = publish(value, cost_ns)  # type: ignore[misc] # a new turn has it
            self.report(cost_ns / 1e9)
            return entry

        def end_and_report(failed: bool) -> None:
            if end is not None:
                end(failed)
            self.report_unstored()

        turn._publish, turn._end = publish_and_report, end_and_report
        # Where nobody refers to it any more, maybe in the garbage collector, which must not read a directory.
        weakref.finalize(turn, self.report_unstored, explains=False).atexit = False

    def _explain(self) -> str:
        return printable(self._why or ("" if self._missed is None else self._missed.explain()))


_refused: dict[str, str] = {}


def _begin(cache: _Cache, key: bytes, label: str) -> _Compilation | None:
    sealed = watch.current()
    if sealed is None:
        return None
    return _Compilation(cache._missed(key), _in_words(key, label), sealed)


def _in_words(key: bytes, label: str) -> str:
    stated = statement_of(key, label)
    return key_in_words(key) if stated is None else stated.label


def _follow(turn: Turn[Any], over: Callable[[], None]) -> None:
    """Call ``over`` when the turn ends, in whatever way."""
    end = turn._end

    def end_all(failed: bool) -> None:
        if end is not None:
            end(failed)
        over()

    turn._end = end_all
    weakref.finalize(turn, over).atexit = False


def watched(cache: _Cache, key: bytes, label: str, turn: Turn[_Entry]) -> Turn[_Entry]:
    """Returns ``turn``, which was granted just now, and whose end is reported if this process is sealed.

    Raises :class:`SealedError` where it is refused, and has ended then.
    """
    if watch.is_followed:
        _follow(turn, watch.begin("compile", _in_words(key, label)))
    compilation = _begin(cache, key, label)
    if compilation is None:
        return turn
    if compilation.is_refused:
        turn.give_up()
        raise compilation.refusal()
    compilation.follow(turn)
    return turn


def unawaited(cache: _Cache, key: bytes, label: str, publish: Callable[[object, int], _Entry]) -> Turn[_Entry]:
    """Returns a turn for which nobody waits, as :func:`watched` does."""
    turn = Turn(publish)
    return watched(cache, key, label, turn) if watch.is_on else turn


def refuse(cache: _Cache, key: bytes, give_up: Callable[[], object]) -> None:
    """Raise :class:`SealedError` if a look-up after which its caller stores is refused; else the store is reported."""
    sealed = watch.current()
    if sealed is not None and sealed.mode == "error" and (compilation := _begin(cache, key, "")) is not None:
        give_up()
        raise compilation.refusal()


def stored(cache: _Cache, key: bytes, label: str = "", cost_ns: int = 0) -> None:
    """Report a store. ``cost_ns``: the time since its caller looked it up and had the turn, 0 where it had none.

    Raises :class:`SealedError` where it is refused; the value stays stored. A turn was granted before the seal, or
    while it was lifted, so that compiling was not refused.
    """
    compilation = _begin(cache, key, label)
    if compilation is None:
        return
    if compilation.is_refused and not cost_ns:
        raise compilation.refusal("was")
    compilation.report(cost_ns / 1e9 if cost_ns else None)


def compiled_unshared(label: str, why: str) -> None:
    """Report what was compiled, and is not looked up here, for this reason. Raises :class:`SealedError` where refused.

    A framework's own cache may have it from now on.
    """
    sealed = watch.current()
    if sealed is None:
        return
    compilation = _Compilation(None, label, sealed, f"it cannot be shared: {why}")
    if compilation.is_refused:
        raise compilation.refusal("was")
    compilation.report(None, "not stored")


@contextlib.contextmanager
def compiling(label: str, why: str) -> Iterator[None]:
    """A block that compiles what cannot be cached, for this reason. Raises :class:`SealedError` where it is refused."""
    sealed = watch.current()
    compilation = None if sealed is None else _Compilation(None, label, sealed, f"it cannot be cached: {why}")
    if compilation is not None and compilation.is_refused:
        raise compilation.refusal()
    over = watch.begin("compile", label)
    try:
        yield
    finally:
        over()
        if compilation is not None:
            compilation.report_unstored()
