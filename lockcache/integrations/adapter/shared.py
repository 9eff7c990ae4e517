# SPDX-License-Identifier: Apache-2.0
"""The entries of one framework: what it looks up, and the turns to compile that end with what it stores.

A framework looks up, compiles and stores in three places. :class:`Shared` joins them again: a look-up that misses takes
the key's turn, the store ends it, and :meth:`Shared.compiling`, around what the framework calls to compile, gives up
what was left open, because compiling raised or the framework does not store. Outside of it a look-up takes no turn.

Keeps invariant 7 (never take the job down): an error of lockcache is one warning, and then the framework's own cache.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from lockcache import serving
from lockcache.arguments import warn_once
from lockcache.calling import FILES, joined_files, parted_files
from lockcache.composition import FileStreamProgramCache
from lockcache.errors import ReentrantComputeError, SealedError
from lockcache.explain import FRAMEWORK, REST, Hashed, Label, statement_of
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.disk import entry_name
from lockcache.integrations.adapter.never_raising import NeverRaising, warn
from lockcache.integrations.key_parts import list_variables
from lockcache.keys import all_variables
from lockcache.resource import Entry
from lockcache.serving import unreported, watch
from lockcache.single_flight import Turn

if TYPE_CHECKING:
    from lockcache.filestream import ViewPath

__all__ = ["Parts", "Shared"]

_log = logging.getLogger("lockcache")
_Call = TypeVar("_Call", bound=Callable[..., Any])

#: Says what a framework's key is made of, by names in its words; called at a miss alone. Its values are texts, numbers
#: or :class:`.Hashed`, the most important come first, and all keys of the framework have them in one order.
Parts: TypeAlias = Callable[[], Mapping[str, object]]


class _Refused(BaseException):  # like GeneratorExit: frameworks catch each Exception of their cache, and compile
    """Carries a :class:`SealedError` past a framework to the end of what it calls to compile."""

    def __init__(self, error: SealedError) -> None:
        super().__init__()
        self.error = error


class Shared:
    """The entries of one framework in a directory that many processes share."""

    def __init__(self, framework: str, version: str, cache: FileStreamProgramCache) -> None:
        self.framework, self._version = framework, version
        #: The directory.
        self.cache = cache
        self._scopes = threading.local()
        #: Whether lockcache failed: the framework's own cache takes over.
        self.has_failed = False

    @property
    def _prefix(self) -> str:
        # All keys have the variables of NVIDIA's compilers, which most frameworks bring along or run.
        return f"{self.framework}/{self._version}/{all_variables() or ''}"

    @property
    def is_storing(self) -> bool:
        """Whether anything can be stored: lockcache has not failed, and the directory is not only read."""
        return not (self.has_failed or self.cache._is_only_read)

    def never_raising(self) -> NeverRaising:
        """A block whose error is one warning: then lockcache has failed, and the framework's own cache takes over."""
        return NeverRaising(self._survives)

    def look_up(
        self,
        key: str,
        label: str = "",
        parts: Parts | None = None,
        *,
        waiting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> bytes | None:
        """The value of ``key``. On a miss within :meth:`compiling` this thread has the turn to compute it.

        ``parts``: what the key is made of, for ``lockcache why``. ``waiting``: a block in which this thread may wait
        for another one's turn.
        """
        try:
            scopes = self._open_scopes()
            if not scopes:
                return self.cache.get(self._prefix + key, turn=False)
            for scope in scopes:
                if key in scope:
                    return None  # it looks again before it stores: no further miss
            if (value := self._stored_here(key)) is not None:
                return value
            with waiting():
                found = self.cache.begin(self._prefix + key, label=self._labelled(key, label, parts), missed=True)
            if isinstance(found, Turn):
                self._stated(key, label, parts)
                scopes[-1][key] = found
                return None
            return found.code
        except Exception as error:  # as of a block that never raises, without its calls
            if not self._survives(error):
                raise
        return None

    def _stored_here(self, key: str) -> bytes | None:
        """Returns what the directory has, without what only a miss needs, which is a third of the time of a hit."""
        cache = self.cache
        if cache._renewed is not None or cache._is_only_read:  # some of it is hidden, and begin looks
            return None
        loaded = cache._here(entry_name((self._prefix + key).encode()))
        return None if loaded is None else loaded[0]

    def look(self, key: str, compiles: str = "", parts: Parts | None = None) -> bytes | None:
        """The value of ``key``, without a turn: the framework will not store it, or nobody is to wait for it.

        ``compiles``: the label of what the framework compiles on a miss; empty if that is nothing. ``parts``: what the
        key is made of, for ``lockcache why``.
        """
        with NeverRaising(self._survives):
            found = self.cache.get(self._prefix + key, turn=False)
            if found is None and compiles:
                label = self._stated(key, compiles, parts)
                if watch.is_on:
                    self._take_unawaited(key, label)
            return found
        return None

    def renew(self, key: str, label: str, parts: Parts) -> None:
        """Have this thread compile ``key`` again, whatever is stored: :meth:`store` replaces that, and states its cost.

        Within :meth:`compiling`. Nobody waits for it.
        """
        with NeverRaising(self._survives):
            self._take_unawaited(key, self._stated(key, label, parts))

    def _take_unawaited(self, key: str, label: str) -> None:
        """Take a turn for which nobody waits. Its compilation is reported when its scope ends at the latest."""
        scopes = self._open_scopes()
        if scopes and not any(key in scope for scope in scopes):
            scopes[-1][key] = self._unawaited(key, label)

    def _unawaited(self, key: str, label: str) -> Turn[Entry]:
        name = (self._prefix + key).encode()
        return serving.unawaited(self.cache, name, label, functools.partial(self.cache._replace, name))

    def import_value(self, key: str, value: bytes, **metadata: Any) -> None:
        """Store what was compiled elsewhere and before, which this process does not report as its compilation."""
        origin, unreported.origin = unreported.origin, "imported"
        unreported.depth += 1
        try:
            self.store(key, value, **metadata)
        finally:
            unreported.depth -= 1
            unreported.origin = origin

    def is_stored(self, key: str) -> bool:
        """Returns whether this directory itself has ``key``, without a read, and without counting a hit or a miss."""
        with NeverRaising(self._survives):
            return has_entry(self.cache._directory.layout, entry_name((self._prefix + key).encode()))
        return False

    def state(self, key: str, label: str, parts: Parts) -> None:
        """State what ``key`` is made of, for ``lockcache why``: of what is stored without having been looked up."""
        with NeverRaising(self._survives):
            self._stated(key, label, parts)

    def _stated(self, key: str, label: str, parts: Parts | None) -> str:
        """Returns the label of a key that missed, whose parts are known from now on, and asked for once.

        Also where the turn was another key's, which replaces files, or where entries are hidden from the program.
        """
        labelled = self._labelled(key, label, parts)
        statement_of((self._prefix + key).encode(), labelled)
        return labelled

    def _labelled(self, key: str, label: str, parts: Parts | None) -> str:
        """Returns the label of a key of which it is not known yet whether it misses."""
        return label if parts is None else Label.of(label, functools.partial(self._parts_of, key, parts))

    def _parts_of(self, key: str, parts: Parts) -> dict[str, object]:
        found = {FRAMEWORK: self.framework, f"version of {self.framework}": self._version, REST: Hashed(key)}
        try:
            found |= parts()
        except Exception as error:  # noqa: BLE001 - of a program's objects, which nobody else may ask
            _log.debug("%s: the parts of a key are not known: %s: %s", self.framework, type(error).__name__, error)
        return found | list_variables(all_variables())

    def store(self, key: str, value: bytes, **metadata: Any) -> None:
        """Store what the framework compiled, and end the turn if this thread has it."""
        with NeverRaising(self._survives):
            entry = Entry(value, {"kind": self.framework, "namespace": self.framework, **metadata})
            for scope in reversed(self._open_scopes()):
                if key in scope:
                    scope.pop(key).store(entry)
                    return
            self.cache.put_entry(self._prefix + key, entry)

    def view(self, key: str) -> ViewPath | None:
        """The files of ``key`` as a folder, which stays for as long as what is returned; ``None`` without one."""
        with NeverRaising(self._survives):
            return cast("ViewPath | None", self.cache.view_files(self._prefix + key))
        return None

    def view_again(self, key: str) -> ViewPath | None:
        """As :meth:`view`, of what this process has just stored or found, which is not another hit."""
        with NeverRaising(self._survives):
            found = self.cache._view(entry_name((self._prefix + key).encode()), self._load_uncounted)
            return cast("ViewPath | None", found)
        return None

    def _load_uncounted(self, name: str) -> tuple[bytes, bytes] | None:
        loaded = self.cache._load_without_turn(name)
        if loaded is None:
            self.cache._reader.misses -= 1
        else:
            self.cache._reader.take_back(loaded)
        return loaded

    def look_at_files(self, key: str) -> dict[str, bytes] | None:
        """The files of ``key``, without a turn."""
        with NeverRaising(self._survives):
            return self.cache.get_files(self._prefix + key)
        return None

    def begin_files(
        self, key: str, label: str = "", parts: Parts | None = None, *, renews: bool = False
    ) -> dict[str, bytes] | Turn[Entry] | None:
        """The files of ``key``, or the turn to make them, which ends when nobody refers to it any more.

        ``None``: neither, and the caller makes them for itself. ``parts``: what the key is made of, for
        ``lockcache why``. ``renews``: they are made again, whatever is stored, and nobody waits for the turn.
        """
        with NeverRaising(self._survives):
            if renews:
                return self._unawaited(key, self._stated(key, label, parts))
            try:
                # A group that is there as one file, from a copy that dropped its metadata, is made again.
                labelled = self._labelled(key, label, parts)
                found = self.cache._begin_whole(self._prefix + key, lambda entry: FILES in entry.metadata, labelled)
            except ReentrantComputeError:  # this thread has the turn, in a compilation around this one
                return None
            if isinstance(found, Turn):
                self._stated(key, label, parts)
                return found
            return parted_files(found.code, found.metadata)
        return None

    @contextlib.contextmanager
    def holding(self, found: object) -> Iterator[Turn[Entry] | None]:
        """A block with ``found``, if that is a turn, which ends with the block."""
        turn, failed = found if isinstance(found, Turn) else None, False
        try:
            yield turn
        except BaseException as error:
            failed = isinstance(error, Exception)
            raise
        finally:
            if turn is not None:
                self.give_up(turn, failed=failed)

    def give_up(self, turn: Turn[Entry], *, failed: bool) -> None:
        """End a turn; nothing happens if it has ended. ``failed``: all that wait for it compile for themselves."""
        with NeverRaising(self._survives):
            turn.give_up(failed=failed)

    def store_files(self, key: str, files: dict[str, bytes], turn: Turn[Entry] | None, **metadata: Any) -> None:
        """Store what the framework made, and end its turn."""
        with NeverRaising(self._survives):
            entry = Entry(*joined_files(files, {"kind": self.framework, "namespace": self.framework, **metadata}))
            if turn is None:
                self.cache.put_entry(self._prefix + key, entry)
            else:
                turn.store(entry)

    def note_unshared(self, reason: str, compiled: str | None = None, *, had_turn: bool = False) -> None:
        """Count a compilation that only the framework's own cache may keep, and log why: once for each reason.

        ``compiled``: the name of what it has compiled; ``None`` where it may find it in its own cache. ``had_turn``: it
        was looked up, so that the end of its turn is what a sealed process reports.
        """
        with NeverRaising(self._survives):
            warn_once(f"{self.framework} keeps in its own cache what lockcache cannot share: {reason}")
            self.cache._recount(uncacheable=1)
            if compiled is not None and (run := self.cache._reader.run) is not None:
                run.compiled("", f"{compiled or self.framework}, which cannot be shared: {reason}", is_stored=False)
            if compiled is not None and watch.is_on and not had_turn:
                serving.compiled_unshared(compiled, reason)

    def compiling(self, function: _Call, *, stores_all: bool = False) -> _Call:
        """``function``, which looks up, compiles and stores; when it is left its turns end.

        ``stores_all``: the framework stores all that it looks up, so what it left open cannot be stored by others
        either, and those who wait for it need not wait for each other.
        """

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Not a context manager, which costs a tenth of a hit.
            scopes, mine, failed = self._open_scopes(), dict[str, Turn[Entry]](), stores_all
            scopes.append(mine)
            try:
                return function(*args, **kwargs)
            except _Refused as refused:
                failed = False
                if len(scopes) > 1:
                    raise  # not yet: what is between would catch it
                raise refused.error from None
            except BaseException as error:
                failed = isinstance(error, Exception)  # an interrupt says nothing of the kernel
                raise
            finally:
                self._leave(scopes, mine, failed=failed)

        return call  # type: ignore[return-value]

    def _leave(self, scopes: list[dict[str, Turn[Entry]]], mine: dict[str, Turn[Entry]], *, failed: bool) -> None:
        """End the turns of a scope."""
        scopes[:] = [scope for scope in scopes if scope is not mine]  # equal ones are others
        for turn in mine.values():
            self.give_up(turn, failed=failed)

    def _survives(self, error: Exception) -> bool:
        """Have the framework's own cache take over. Returns False for :class:`SealedError` outside of all scopes."""
        if isinstance(error, SealedError):  # the program asked for it
            if self._open_scopes():
                raise _Refused(error) from None
            return False
        self.has_failed = True
        warn(self.framework, error)
        return True

    def _open_scopes(self) -> list[dict[str, Turn[Entry]]]:
        scopes: list[dict[str, Turn[Entry]]] = self._scopes.__dict__.setdefault("open", [])
        return scopes
