# SPDX-License-Identifier: Apache-2.0
"""State: whether this process is sealed, since when and how, by :func:`seal` or by ``$LOCKCACHE_SEALED``.

Keeps the cost of a hit, which asks nothing here, and of a miss in a process that is not sealed: it reads one attribute,
:data:`watch.is_on`. No thread waits for the seal to begin: a miss finds out whether it has. A forked child is sealed as
its parent is. Not promised: that :func:`seal` reaches processes that are started and not forked; variables do.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from lockcache.arguments import coerce_choice, coerce_file, configured_file, configured_text, is_disabled
from lockcache.fork import after_fork_in_child

__all__ = ["MODES", "Missed", "configured_seal", "obey_variables", "seal", "unreported", "unseal", "unsealed", "watch"]

Mode: TypeAlias = Literal["log", "warn", "error"]
MODES: Final[tuple[Mode, ...]] = ("log", "warn", "error")

_MANIFEST: Final = "manifest"


class Missed(Protocol):
    """A key that a back end lacked, as far as that back end can tell."""

    #: The name of its entry, as ``lockcache ls`` prints it.
    name: str

    def explain(self) -> str:
        """Returns why it missed, in words; empty where that is not known. Raises nothing."""

    def list_in(self, path: str) -> None:
        """Add its name to the manifest at ``path``. Raises nothing."""


class Sealed(NamedTuple):
    """How a process is sealed."""

    mode: Mode
    #: The manifest that lists the keys that were missed, or empty.
    misses: str


class _Unreported(threading.local):
    """The blocks of this thread in which a look-up or a store is a part of another one, which is reported itself.

    It is counted by hand, in ``try`` and ``finally``: entering a context would be two calls of a hit.
    """

    depth = 0
    #: Where what is stored comes from, for ``lockcache run``. Empty: from a compilation. ``found``: from another tier.
    #: ``stored``: from one that got it just now, and may have counted it. ``imported``: neither found nor compiled.
    origin = ""


#: See :class:`_Unreported`.
unreported: Final = _Unreported()


class _Lift:
    """One block of :func:`unsealed`."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class Watch:
    """The seal of this process."""

    def __init__(self) -> None:
        #: Whether a compilation has to ask :meth:`current`.
        self.is_on = False
        self._sealed: Sealed | None = None
        self._has_begun: Callable[[], bool] = _at_once
        #: Whether a program or the variables have said something already.
        self.is_stated = False
        #: Whether ``$LOCKCACHE_TELEMETRY`` was read: once in a process.
        self.has_obeyed_telemetry = False
        self._prefetches: list[Callable[[], bool]] = []
        #: Telemetry that follows compilations, by name: see :meth:`follow`.
        self._followers: dict[str, Callable[[str, str], Callable[[], object]]] = {}
        #: The blocks of all threads that are in :func:`unsealed`.
        self.lifted_by: list[_Lift] = []
        #: Those of the blocks in which this child was forked, which a worker never leaves.
        self._inherited: list[_Lift] = []
        after_fork_in_child(self)

    def set(self, sealed: Sealed | None, has_begun: Callable[[], bool]) -> None:
        """Seal, from when ``has_begun()`` first returns True; or end that."""
        self.is_stated = True
        if self._inherited:
            self.lifted_by = [lift for lift in self.lifted_by if lift not in self._inherited]
            self._inherited = []
        self._has_begun, self._sealed = has_begun, sealed
        self.is_on = sealed is not None or bool(self._followers)

    def follow(self, name: str, begin: Callable[[str, str], Callable[[], object]]) -> None:
        """Call ``begin`` when a compilation or a wait begins, and what it returns when that ends, once.

        ``begin`` gets ``compile`` or ``wait for``, and the kernel's name. Of one ``name`` the first is kept. Neither
        may raise.
        """
        self._followers.setdefault(name, begin)
        self.is_on = True

    @property
    def is_followed(self) -> bool:
        """Whether somebody follows compilations and waits."""
        return bool(self._followers)

    def begin(self, what: str, label: str) -> Callable[[], None]:
        """Tell those who follow that something begins in this thread. Returns what tells them of its end, once."""
        ends = [] if unreported.depth else [begin(what, label) for begin in self._followers.values()]

        def end() -> None:
            while ends:
                ends.pop()()

        return end

    def current(self) -> Sealed | None:
        """Returns how this process is sealed, if it is and what this thread does now is to be reported."""
        sealed = self._sealed
        if sealed is None or self.lifted_by or unreported.depth or is_disabled():
            return None
        if self._has_begun is not _at_once:
            if not self._has_begun():
                return None
            self._has_begun = _at_once
        return sealed

    def await_prefetch(self, is_over: Callable[[], bool]) -> None:
        """Begin the seal no sooner than ``is_over()``, if it begins once a manifest was served."""
        self._prefetches.append(is_over)

    def is_manifest_served(self) -> bool:
        """Returns whether no process of the node fetches what a manifest lists any more."""
        return all(is_over() for is_over in list(self._prefetches))

    def _after_fork_in_child(self) -> None:
        # Other threads, which a child does not have, would never leave their blocks in it.
        self.lifted_by = [lift for lift in self.lifted_by if lift.thread == threading.get_ident()]
        self._inherited = list(self.lifted_by)


def _at_once() -> bool:
    return True


watch: Final = Watch()


def seal(mode: Mode = "warn", *, misses: str | os.PathLike[str] | None = None) -> None:
    """Report, or refuse, each compilation of this process from now on: warm-up is over.

    A compilation is a look-up that takes the turn to compute, in any back end and any adapter, or a store without one.
    A caller that waits for another one's compilation does not compile. A hit costs no more than before.

    Args:
        mode: ``"log"`` and ``"warn"``: one line for each compilation, as INFO or WARNING, with the program's name, the
            part of its key that differs from the nearest stored one, seconds and callers. ``"error"``:
            :class:`SealedError` in the caller, before it compiles; where only the store is seen, after that.
        misses: The manifest that lists the keys that were missed, to be made if it is missing. ``None``:
            ``$LOCKCACHE_SEAL_MANIFEST``, if that is set.

    Threads share it, and forked children have it. It takes the place of an earlier one, and of ``$LOCKCACHE_SEALED``.
    Under ``$LOCKCACHE_DISABLE`` it has no effect. Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if not isinstance(mode, str):
        raise TypeError(f"mode must be 'log', 'warn' or 'error', got {mode!r:.80}")
    if mode not in MODES:
        raise ValueError(f"mode must be 'log', 'warn' or 'error', got {mode!r:.80}")
    if misses is None:
        listed = configured_file("LOCKCACHE_SEAL_MANIFEST")
    else:
        listed = coerce_file("misses", misses, "a str, an os.PathLike of str, or None")
    watch.set(Sealed(mode, listed), _at_once)


def unseal() -> None:
    """End what :func:`seal` or ``$LOCKCACHE_SEALED`` began, or would begin later. Nothing happens without."""
    watch.set(None, _at_once)


@contextlib.contextmanager
def unsealed() -> Iterator[None]:
    """Report and refuse no compilation of any thread while this block runs: for a planned reload."""
    lift = _Lift()
    try:
        watch.lifted_by.append(lift)  # in here: an interrupt may come when this is done
        yield
    finally:
        try:  # not by contextlib: an interrupt could come in a function that is called here
            watch.lifted_by.remove(lift)
        except ValueError:
            pass  # a child that another thread forked has none of it


def configured_seal() -> tuple[Mode | None, float | None, str]:
    """Returns what the variables state: the mode, after how many seconds, and the manifest of what was missed.

    ``None`` seconds: once ``$LOCKCACHE_MANIFEST`` was served. Raises :class:`ValueError` naming the variable.
    """
    return coerce_choice("LOCKCACHE_SEALED", MODES), _seal_after(), configured_file("LOCKCACHE_SEAL_MANIFEST")


def obey_variables() -> None:
    """Seal this process as the variables say, when it makes its first cache, unless it has said something itself.

    Raises :class:`ValueError` naming the variable.
    """
    if not watch.has_obeyed_telemetry:
        if configured_text("LOCKCACHE_TELEMETRY"):
            importlib.import_module("lockcache.telemetry").obey()  # by its name: it is built on this room
        watch.has_obeyed_telemetry = True
    if watch.is_stated or not configured_text("LOCKCACHE_SEALED"):
        return  # a program may make its cache for each compilation
    mode, after, misses = configured_seal()
    if mode is None:
        return
    if after is None:
        has_begun: Callable[[], bool] = watch.is_manifest_served
    elif after:
        begin = time.monotonic() + after
        has_begun = lambda: time.monotonic() >= begin  # noqa: E731
    else:
        has_begun = _at_once
    watch.set(Sealed(mode, misses), has_begun)


def _seal_after() -> float | None:
    text = configured_text("LOCKCACHE_SEAL_AFTER")
    if not text:
        return None if configured_text("LOCKCACHE_MANIFEST") else 0.0
    if text == _MANIFEST:
        return None
    try:
        seconds = float(text)
        if 0 <= seconds < math.inf:
            return seconds
    except ValueError:
        pass
    from lockcache.sizes import parse_duration  # as in lockcache.arguments

    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"LOCKCACHE_SEAL_AFTER: {error}, or {_MANIFEST}, or a number of seconds") from None
