# SPDX-License-Identifier: Apache-2.0
"""The cache of numba's index and data files, on lockcache: which kernel is looked up, and which one may be stored."""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lockcache.integrations.adapter import Shared, warn
from lockcache.integrations.framework_keys import NotDescribedError, describe_program, describe_types
from lockcache.integrations.key_parts import parts_of_numba
from lockcache.keys import all_variables

__all__ = ["Doors", "adapt_kernels"]

# Beginnings of the names of numba's settings that change no kernel: where it keeps, shows and says things, and the CPU.
_NEUTRAL: Final = (
    *("CACHE_", "CHROME_", "COLOR_", "CPU_", "CUDA_LOG", "CUDA_WARN", "DEBUG_CACHE", "DEVELOPER", "DISABLE_PERF"),
    *("DUMP_", "ENABLE_AVX", "ENABLE_PROF", "ENABLE_SYS", "FULL_", "GDB_", "HIGHLIGHT", "HTML", "IS_", "NUMBA_"),
    *("RUNNING_", "SHOW_", "THREADING_", "TRACE", "USING_", "CUDA_DEALLOCS", "CUDA_MEMORY", "CUDA_DRIVER"),
)


@dataclass(frozen=True)
class Doors:
    """The parts of a framework with numba's cache that are replaced or asked. Made where they are looked for."""

    #: Its class of the index and data files of a function.
    file: Any
    #: Its class of kernels, and the methods that look up, compile and store.
    dispatcher: Any
    methods: tuple[str, ...]
    #: Its settings.
    config: Any
    #: Returns the builds of all that it compiles with.
    compilers: Callable[[], str]
    #: Its locks that it may hold while it looks up, and needs for storing: those first that it takes last.
    locks: tuple[Any, ...] = ()
    #: Whether it compiles by the annotations of functions.
    has_annotations: bool = False

    def __post_init__(self) -> None:
        """Raises :class:`AttributeError` for a method that is missing."""
        for name in ("load", "save", "flush", "_dump"):
            getattr(self.file, name)
        for name in self.methods:
            getattr(self.dispatcher, name)


def adapt_kernels(shared: Shared, doors: Doors) -> None:
    """Have the framework look up and store its kernels in ``shared``."""
    own_load, own_save, own_flush = doors.file.load, doors.file.save, doors.file.flush
    compiling, again = _Compiling(shared, doors), _CompiledAgain()

    def load(self: Any, key: Any) -> Any:
        name = compiling.name_of(self, key)
        if name is None:
            return own_load(self, key)
        parts = functools.partial(compiling.parts_of, self, key)
        if again.is_older(self, name):
            shared.renew(name, self._index_name, parts)
            return None  # not the older kernel, which is stored over
        found = shared.look_up(name, self._index_name, parts, waiting=compiling.unlocked)
        return None if found is None else _loaded(shared, found)

    def save(self: Any, key: Any, data: Any) -> None:
        name, label = compiling.name_of(self, key), self._index_name.removesuffix(".nbi")
        if name is None:
            own_save(self, key, data)
            compiling.note_unshared(label)
            return
        again.note_stored(name)
        if compiling.is_unchanged(name, label):
            shared.store(name, self._dump(data), label=label)

    def flush(self: Any) -> None:
        """Read no older kernel of this function in this process: ``recompile()`` asks for it."""
        own_flush(self)
        again.note_flushed(self)

    doors.file.load, doors.file.save, doors.file.flush = load, save, flush
    for method in doors.methods:
        own = getattr(doors.dispatcher, method)
        setattr(doors.dispatcher, method, compiling.noting(shared.compiling(own)))


def _loaded(shared: Shared, value: bytes) -> Any:
    """Returns what was pickled; ``None`` if it cannot be loaded: it is compiled again, and stored."""
    try:
        return pickle.loads(value)
    except Exception as error:  # noqa: BLE001 - of classes that have changed, whatever they raise
        warn(shared.framework, error)
        return None


class _CompiledAgain:
    """The functions that this process was asked to compile again."""

    def __init__(self) -> None:
        self._flushed = set[tuple[str, str]]()
        self._stored = set[str]()

    def note_flushed(self, file: Any) -> None:
        self._flushed.add((file._cache_path, file._index_name))

    def note_stored(self, name: str) -> None:
        if self._flushed:
            self._stored.add(name)

    def is_older(self, file: Any, name: str) -> bool:
        """Returns whether what is stored of a kernel may be from before the function was to be compiled again."""
        if not self._flushed:
            return False
        return (file._cache_path, file._index_name) in self._flushed and name not in self._stored


class _Compilation:
    """What a thread compiles now."""

    def __init__(self, dispatcher: Any, has_interface: bool, is_inner: bool) -> None:
        self.dispatcher = dispatcher
        #: Whether the caller asked for names in the output.
        self.has_interface = has_interface
        self.is_inner = is_inner
        #: What its program and numba's settings were when its key was made first.
        self.described = ""
        self.why_not = ""


class _Compiling:
    """The kernels that the threads of this process compile, and their names among all processes."""

    def __init__(self, shared: Shared, doors: Doors) -> None:
        self._shared, self._doors = shared, doors
        self._threads = threading.local()
        # The settings when they were put in words last, which costs more than to compare them.
        self._said: tuple[dict[str, Any], str] = {}, ""

    def noting(self, compile_kernel: Any) -> Any:
        """``compile_kernel``, a method of numba's, within which its object is known."""

        @functools.wraps(compile_kernel)
        def call(dispatcher: Any, *args: Any, **options: Any) -> Any:
            before, has_interface = self._now, options.get("abi_info") is not None
            self._threads.now = _Compilation(dispatcher, has_interface, before is not None)
            try:
                return compile_kernel(dispatcher, *args, **options)
            finally:
                self._threads.now = before

        return call

    @property
    def _now(self) -> _Compilation | None:
        found: _Compilation | None = getattr(self._threads, "now", None)
        return found

    @contextlib.contextmanager
    def unlocked(self) -> Iterator[None]:
        """A block without the framework's locks, in which this thread may wait for another one that needs them.

        Not within another compilation, which relies on them.
        """
        held = []
        for lock in () if self._now is None or self._now.is_inner else self._doors.locks:
            try:
                lock.release()
            except RuntimeError:  # this thread does not hold it
                continue
            held.append(lock)
        try:
            yield
        finally:
            for lock in reversed(held):
                lock.acquire()

    def name_of(self, file: Any, key: Any) -> str | None:
        """Returns the key of a kernel, the same in each process that would compile the same; ``None`` without one."""
        now = self._now
        if now is None or self._shared.has_failed:
            return None
        try:
            return self._named(now, file, key)
        except NotDescribedError as error:
            now.why_not = str(error)
        except Exception as error:  # noqa: BLE001 - of a user's objects, which were asked for their parts
            now.why_not = f"{type(error).__name__}: {error}"
        return None

    def _named(self, now: _Compilation, file: Any, key: Any) -> str:
        if now.has_interface:
            raise NotDescribedError("it is compiled with abi_info")
        if getattr(now.dispatcher, "extensions", None):
            raise NotDescribedError("the option extensions is not a value")
        parts = _parts_of_key(key)
        program = describe_program(
            now.dispatcher.py_func, now.dispatcher.targetoptions, has_annotations=self._doors.has_annotations
        )
        described = f"{program}/{self._settings()}"
        now.described = now.described or described
        name = f"{file._index_name}/{_details(parts)}/{described}"
        if " at 0x" in name:
            raise NotDescribedError("its key has an address in it")
        return name

    def parts_of(self, file: Any, key: Any) -> dict[str, object]:
        """Returns the parts of the key of a kernel."""
        now = self._now
        if now is None:
            return {}
        return parts_of_numba(file._index_name, key, now.dispatcher, self._values(), self._doors.compilers())

    def _settings(self) -> str:
        # Variables of compilers are in all keys. Here one that changes while a kernel is compiled is noticed.
        return f"{self._settings_in_words()} {all_variables()} {self._doors.compilers()}"

    def _settings_in_words(self) -> str:
        """Returns :meth:`_values` as a text, which is made again where a setting has another value."""
        seen, words = self._said
        if vars(self._doors.config) != seen:
            now = {**vars(self._doors.config)}
            words = str(self._values())
            is_plain = all(_is_plain(now[name]) for name in _changing(tuple(now)))
            self._said = now if is_plain else {}, words
        return words

    def _values(self) -> list[tuple[str, str]]:
        """Returns numba's settings that may change a kernel."""
        values = vars(self._doors.config)
        return [(name, str(values[name])) for name in _changing(tuple(values))]

    def is_unchanged(self, name: str, label: str) -> bool:
        """Returns whether a kernel's program is what it was before it was compiled."""
        now = self._now
        if now is not None and name.endswith(now.described):
            return True
        why = "a value that a kernel names changed while it was compiled"
        self._shared.note_unshared(why, label, had_turn=True)
        return False

    def note_unshared(self, label: str) -> None:
        """Say why a kernel stays in numba's own cache, which has just stored it."""
        if self._now is not None and self._now.why_not:
            self._shared.note_unshared(self._now.why_not, label)


def _is_plain(value: Any) -> bool:
    """Returns whether a value cannot be changed in place, and so differs from what it was if it is another one."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (int, float, str))


@functools.lru_cache(maxsize=4096)
def _details(parts: tuple[Any, ...]) -> str:
    """Returns :func:`describe_types` of parts of a key, once for those that the framework takes for equal."""
    return describe_types(parts)


@functools.lru_cache(maxsize=8)
def _changing(names: tuple[str, ...]) -> list[str]:
    """Returns the names of the settings that may change a kernel."""
    return sorted(name for name in names if name.isupper() and not name.startswith(_NEUTRAL))


def _parts_of_key(key: Any) -> tuple[Any, ...]:
    """Returns the parts of a framework's key, with the types of a signature, which prints some alike.

    Without its digests of bytecode and pickled closure, for which the program stands.
    """
    parts = []
    for part in key:
        if type(part) is not tuple:
            is_signature = hasattr(part, "return_type") and hasattr(part, "args")
            parts.append((part.return_type, part.args) if is_signature else part)
        elif [isinstance(each, str) and len(each) for each in part] != [64, 64]:
            parts.append(part)
    return tuple(parts)
