# SPDX-License-Identifier: Apache-2.0
"""The interface of every back end.

Keeps the drop-in promise: where cuda.core is loaded, every :class:`ProgramCacheResource` passes its ``isinstance``
check, and this module imports nothing of CUDA.

Source of the interface: ``cuda.core.utils.ProgramCacheResource`` (cuda.core 1.2), widened by entries with metadata
and by statistics.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from lockcache import serving
from lockcache.arguments import coerce_seconds, configured_switch, warn_once
from lockcache.explain import statement_of
from lockcache.resource.stats import CacheStats
from lockcache.resource.values import (
    Entry,
    as_entry,
    coerce_key,
    computed_entry,
    in_namespace,
)
from lockcache.serving import unreported, watch
from lockcache.single_flight import Flight, Turn, computing, refuse_reentrance, take_off, wait_for_flight

_log = logging.getLogger("lockcache")

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound="ProgramCacheResource")


_renewed: defaultdict[str, set[Any]] = defaultdict(set)


def renewed_keys(path: str) -> set[Any] | None:
    """Returns the keys that this process has stored in ``path``, which alone it reads under ``$LOCKCACHE_RECACHE``.

    ``None`` without that. Of the process, and not of one object: a program may open its cache for each compilation.
    """
    return _renewed[path] if configured_switch("LOCKCACHE_RECACHE") else None


class ProgramCacheResource(ABC):
    """A mapping from keys to compiled programs that several threads, and for some back ends processes, may share.

    Keys are ``bytes``, ``bytearray`` or ``str``; values ``bytes``, ``bytearray``, ``memoryview`` or
    ``cuda.core.ObjectCode``; reads give ``bytes``. There is no ``in``: between asking and reading, another process may
    evict the entry. Use ``get``.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # cuda.core accepts only instances of its own ABC. That check reads this attribute, and at that moment cuda.core
        # is loaded by definition: so registering here costs nobody an import, and works for subclasses too. Refused:
        # importing cuda.core (CUDA must stay optional), an import hook (touches everybody's imports for one class).
        cls = type(self)
        upstream = getattr(sys.modules.get("cuda.core.utils"), "ProgramCacheResource", None)
        if upstream is not None and cls not in _registered:
            _registered.add(cls)
            upstream.register(cls)
        return cls

    @abstractmethod
    def __getitem__(self, key: bytes | str) -> bytes:
        """Returns the code stored under ``key``, or :class:`KeyError`."""

    @abstractmethod
    def __setitem__(self, key: bytes | str, value: object) -> None:
        """Store ``value``; once this returns no read gives an older one."""

    @abstractmethod
    def __delitem__(self, key: bytes | str) -> None:
        """Remove the entry, or :class:`KeyError`."""

    @abstractmethod
    def __len__(self) -> int:
        """Returns the number of entries now."""

    @abstractmethod
    def clear(self) -> None:
        """Remove every entry."""

    #: Whether ``$LOCKCACHE_DISABLE`` turned it off.
    _is_off = False
    #: Whether it takes no writes.
    _is_only_read = False
    #: Whether it is never changed by anybody: then it can be no tier in front of others, which all get what is written.
    _is_fixed = False
    #: Whether it is a server, which is asked for what a tier in front of it lacks, and decides nothing else.
    _is_backing = False
    #: What the processes that share it know of headers: a :class:`lockcache.headers.ClosureStore`.
    _closures: Any = None

    def _peek(self, name: bytes) -> Entry | None:
        """Returns what :meth:`get_entry` does, and takes no turn where its misses do."""
        return self.get_entry(name)

    def _missed(self, key: bytes) -> serving.Missed | None:
        """Returns what is known of ``key``, which was looked up and not found, for a process that is sealed."""
        return None

    def _recount(self, **counts: int) -> None:  # noqa: B027 - not all count
        """Add to counters, by their names in :class:`CacheStats`: a look-up that missed looks again, say."""

    def _note_uncacheable(self, reason: str) -> None:
        """Count a compilation that is returned and not stored, and log a warning: once for each reason in a process."""
        warn_once(f"compiled and not stored: {reason}")
        self._recount(uncacheable=1)

    # ``in`` would otherwise fall back to __getitem__(0), (1), ... and answer with a puzzling TypeError.
    __contains__ = None
    __iter__ = None

    @overload
    def get(self, key: bytes | str) -> bytes | None: ...
    @overload
    def get(self, key: bytes | str, default: _T) -> bytes | _T: ...
    def get(self, key: bytes | str, default: object = None) -> object:
        """Returns the code stored under ``key``, or ``default``."""
        try:
            return self[key]
        except KeyError:
            return default

    def get_entry(self, key: bytes | str) -> Entry | None:
        """Returns the entry with its metadata, or ``None``."""
        code = self.get(key)
        return None if code is None else Entry(code)

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Store code and metadata as one unit."""
        if entry.metadata:
            raise TypeError(f"{type(self).__name__} stores no metadata; override put_entry and get_entry")
        self[key] = entry.code

    def get_or_compute(self, key: bytes | str, compute: Callable[[], object], *, label: str = "") -> bytes:
        """Returns the code stored under ``key``; if there is none, stores what ``compute()`` returns, and returns it.

        Compile-once: of all callers that share this back end and miss the key at once, one computes and the others get
        what it stored. ``compute`` returns a value as for ``cache[key] = value``, or an :class:`Entry`. If it raises,
        that goes to its caller, and the next one tries. A write that is dropped loses nothing: the caller gets the
        code. ``label`` tells waiting processes what is being compiled.

        Raises :class:`ReentrantComputeError` if ``compute`` asks for its own key.
        """
        return self.get_or_compute_entry(key, compute, label=label).code

    def get_or_compute_entry(
        self,
        key: bytes | str,
        compute: Callable[[], object],
        *,
        label: str = "",
        is_whole: Callable[[Entry], bool] | None = None,
    ) -> Entry:
        """Returns the entry of :meth:`get_or_compute`, with its metadata.

        An entry of which ``is_whole(entry)`` is false, such as one that lost its metadata when its directory was
        copied, is a miss: of all callers that meet it at once, one computes and replaces it.
        """
        found = self.begin(key, label=label) if is_whole is None else self._begin_whole(key, is_whole, label)
        if isinstance(found, Entry):
            return found
        with found as turn:
            computing(self, key if type(key) is bytes else coerce_key(key), turn)
            if not callable(compute):
                raise TypeError(
                    f"compute must be callable without arguments, got {type(compute).__name__} {compute!r:.80}"
                )
            began_ns = time.perf_counter_ns()
            value = compute()
            return turn.store(value, time.perf_counter_ns() - began_ns)

    def begin(self, key: bytes | str, *, label: str = "", namespace: str = "") -> Entry | Turn[Entry]:
        """Returns the entry stored under ``key``; if there is none, the caller's :class:`Turn` to compute it.

        For callers whose computation is not one function, as ``get_or_compute`` wants it. If another caller has the
        turn, waits for it as ``get_or_compute`` does. ``label`` tells those who wait what is being compiled;
        ``namespace`` is stored as the entry's, unless its metadata state one: filters and budgets go by it::

            found = cache.begin(key)
            if isinstance(found, Turn):
                with found:  # left without a store, the turn is given up
                    found = found.store(compile(source))
            run(found.code)

        Raises :class:`ReentrantComputeError` if this thread has that turn already.
        """
        name = coerce_key(key)
        found = self.get_entry(name)
        if found is not None:
            return found
        refuse_reentrance(self, name)
        if self._is_off:  # nothing will be stored that anybody could wait for
            return serving.unawaited(self, name, label, computed_entry)
        self._recount(misses=-1)  # the second look decides
        flight = take_off(self, name)
        found = self.get_entry(name)
        if found is not None:
            flight.land()
            self._recount(waits=flight.has_waited)
            return found
        flight.begin()
        turn = Turn(in_namespace(namespace, functools.partial(self._publish, name, flight)), flight.land)
        return serving.watched(self, name, label, turn) if watch.is_on else turn

    def _begin_whole(self, key: bytes | str, is_whole: Callable[[Entry], bool], label: str) -> Entry | Turn[Entry]:
        """Returns what :meth:`begin` does; where that is not whole, what :meth:`_begin_replacing` does."""
        found = self.begin(key, label=label)
        if isinstance(found, Turn) or is_whole(found):
            return found
        self._recount(hits=-1, misses=1)
        replaced = self._begin_replacing(coerce_key(key), is_whole, label)
        if isinstance(replaced, Entry):
            self._recount(hits=1, misses=-1)
        return replaced

    def _begin_replacing(self, name: bytes, is_whole: Callable[[Entry], bool], label: str) -> Entry | Turn[Entry]:
        """Returns the entry under ``name`` if it is whole by now, else the turn to replace it. Counts nothing."""
        # Callers that wait for the turn of a key get the entry that is there, so this is the turn of another key, which
        # never has an entry. Refused: to remove the entry, which another caller may have replaced since.
        refuse_reentrance(self, name)
        stated = statement_of(name, label)  # of the key that has the entry: nothing is stated of the other one
        unreported.depth += 1
        try:
            turn = self.begin(b"lockcache replaces " + name, label="" if stated is None else stated.label)
        finally:
            unreported.depth -= 1
        end = turn._end if isinstance(turn, Turn) else None
        found = self.get_entry(name)
        self._recount(**({"hits": -1, "misses": -1} if found is not None else {"misses": -2}))
        if found is None or not is_whole(found):
            replacing = Turn(functools.partial(self._replace, name), end)
            return serving.watched(self, name, label, replacing) if watch.is_on else replacing
        if end is not None:
            end(False)
        return found

    def put_files(
        self, key: bytes | str, files: Mapping[str, bytes], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Store several files as one entry: a reader sees all of them, of one writer, or none.

        ``files`` are names, without slashes, and contents. For frameworks that keep a group of files for a kernel.
        """
        from lockcache.calling import joined_files

        self.put_entry(key, Entry(*joined_files(files, metadata)))

    def get_files(self, key: bytes | str) -> dict[str, bytes] | None:
        """Returns the files stored by :meth:`put_files`, in their order; ``None`` if there are none under ``key``."""
        from lockcache.calling import parted_files

        entry = self.get_entry(key)
        return None if entry is None else parted_files(entry.code, entry.metadata)

    def view_files(self, key: bytes | str) -> str | None:
        """Returns the path of a folder with the files stored by :meth:`put_files`, for programs that open paths.

        ``None`` here: a back end that is not a directory has none, and :meth:`get_files` must do.
        """
        return None

    async def aget_or_compute(self, key: bytes | str, compute: Callable[[], object], *, label: str = "") -> bytes:
        """Get or compute like :meth:`get_or_compute`, for asyncio: the event loop goes on while this waits.

        ``compute`` is a function, which runs in a thread, or a coroutine function, which runs in the loop. A task that
        is cancelled gives the turn up; what it started in a thread runs to its end, and is not stored.
        """
        from lockcache.calling import aget_or_compute  # loads asyncio

        return await aget_or_compute(self, coerce_key(key), compute, label)

    @overload
    def memoize(self, function: Callable[_P, object], /) -> Callable[_P, Any]: ...
    @overload
    def memoize(
        self, function: None = None, /, *, key: Callable[..., object] | None = None, version: str = ""
    ) -> Callable[[Callable[_P, object]], Callable[_P, Any]]: ...
    def memoize(
        self,
        function: Callable[..., object] | None = None,
        /,
        *,
        key: Callable[..., object] | None = None,
        version: str = "",
    ) -> Any:
        """Decorate a function that compiles: its results, as for ``cache[key] = value``, are kept here::

            @cache.memoize(version=f"gemm 3, {compiler_version()}")
            def compile_gemm(arch: str, tile: int) -> bytes: ...

        A call gives ``bytes``. Its key is made of the function's module and qualified name, ``version`` and the
        arguments: bytes, str, numbers, None, and lists and tuples of these. Put everything else the result depends on
        (the function's code, a compiler's version, files) into ``version``. ``key(*args, **kwargs)`` returns bytes or
        str to use in place of the arguments, for arguments of other types. A coroutine function stays one.

        Raises :class:`TypeError` for arguments of other types, :class:`ValueError` for a function that has no name of
        its own: a lambda, one defined in another function, a bound method without ``key``; when it is called, also if
        its module has another function of this name, or this process called one with this ``version``, unless that is
        the same code, loaded again. :meth:`get_or_compute` takes those, with a key that distinguishes them.
        """
        from lockcache.calling import memoized

        if not isinstance(version, str):
            raise TypeError(f"version must be str, got {type(version).__name__} {version!r:.80}")
        if function is None:
            return lambda function: memoized(self, function, key, version, as_entry)
        return memoized(self, function, key, version, as_entry)

    def wait(self, key: bytes | str, timeout_seconds: float) -> Entry | None:
        """Returns the entry once the caller that has its turn stores it. Takes no turn.

        ``None`` if nobody has the turn, if it was given up, or after ``timeout_seconds``.
        """
        name, seconds = coerce_key(key), coerce_seconds("timeout_seconds", timeout_seconds)
        found = self.get_entry(name)
        if found is not None:
            return found
        self._recount(misses=-1)  # the second look decides
        has_waited = wait_for_flight(self, name, seconds)
        found = self.get_entry(name)
        self._recount(waits=has_waited and found is not None)
        return found

    def _publish(self, name: bytes, flight: Flight, value: object, cost_ns: int) -> Entry:
        try:
            return self._replace(name, value, cost_ns)
        finally:
            flight.land()

    def _replace(self, name: bytes, value: object, cost_ns: int) -> Entry:
        """Store a computed value. Returns its entry, also where the store may not be written."""
        entry = computed_entry(value, cost_ns)
        unreported.depth += 1  # its turn is
        try:
            if type(self).put_entry is ProgramCacheResource.put_entry:
                self[name] = entry.code  # a third party's back end that keeps no metadata
            else:
                self.put_entry(name, entry)
        except OSError as error:
            # cache[key] = value says that the store may not be written; here the code must not be lost.
            _log.warning("%r: a program was compiled and could not be stored: %s", self, error)
        finally:
            unreported.depth -= 1
        return entry

    def update(self, items: Mapping[Any, Any] | Iterable[tuple[Any, Any]], /) -> None:
        """Store every pair, one after the other. Not a transaction: an error leaves the earlier ones stored."""
        pairs: object = items.items() if isinstance(items, Mapping) else items
        if not isinstance(pairs, Iterable):
            raise TypeError(f"items must be a mapping or an iterable of (key, value), got {items!r:.80}")
        for index, pair in enumerate(pairs):
            try:
                key, value = pair
            except (TypeError, ValueError):
                raise TypeError(f"items[{index}] must be a (key, value) pair, got {pair!r:.80}") from None
            self[key] = value

    def stats(self) -> CacheStats:
        """Returns the counters of this object, and the size of the store."""
        return CacheStats(entries=len(self))

    # Deliberately not abstract, and empty: a back end that holds nothing open has nothing to close.
    def close(self) -> None:  # noqa: B027
        """Give back what is held open. The cache may be used again; it reopens what it needs."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_registered: set[type] = set()
