# SPDX-License-Identifier: Apache-2.0
"""Triton's cache manager on lockcache, and how it is installed.

All files of a kernel, the intermediate ones and its metadata, are one entry. The turn to compile it ends when compiling
raises, also where the exception is kept.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from lockcache.filestream import ViewPath
from lockcache.integrations.adapter import (
    Parts,
    Shared,
    UnsupportedError,
    install as install_adapter,
    installed,
    looking_for_doors,
    open_shared,
    warn,
)
from lockcache.integrations.framework_keys import add_constants_to_keys, c_library
from lockcache.integrations.key_parts import parts_of_launcher
from lockcache.integrations.triton.asked import asked
from lockcache.integrations.triton.links import link_for_inductor
from lockcache.integrations.triton.temporary import TemporaryFolders
from lockcache.resource import Entry
from lockcache.single_flight import Turn

__all__ = ["LockcacheManager", "describe_metadata", "install", "stored_name"]  # noqa: F822 - made when asked for

_OLDEST_TRIED = (3, 2)
_METHODS = {"get_file", "get_group", "put", "put_group"}
_AUTOTUNED = ".autotune.json"
# In Triton before 3.4, the name of the class in its module of caches.
_CHOSEN = "__cache_cls"
_BINARIES = (".cubin", ".hsaco")
_LIBRARY = ".so"


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make Triton keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and Triton's own cache is as it was. A second call
    changes nothing.
    """
    return install_adapter("triton", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    _look_for_doors()
    manager, other, choose = _manager_class(), *_chosen_manager()
    if other is not None and other is not manager:
        raise UnsupportedError(f"it has another cache manager, {other.__module__}:{other.__name__}")
    shared = _open(path, cap_bytes)
    choose(manager)
    return shared


def _knobs() -> Any:
    """Returns Triton's settings; ``None`` in Triton before 3.4, which reads variables."""
    # Not by `from triton import`, which takes one that is missing for a circular import while Triton is imported.
    return importlib.import_module("triton.knobs") if importlib.util.find_spec("triton.knobs") else None


def _chosen_manager() -> tuple[Any, Callable[[Any], None]]:
    """Returns the cache manager that the program chose, ``None`` without one, and how another one is chosen."""
    from triton.runtime import cache

    knobs = _knobs()
    if knobs is not None:
        return knobs.cache.manager_class, functools.partial(setattr, knobs.cache, "manager_class")
    chosen = os.environ.get("TRITON_CACHE_MANAGER")
    if chosen is not None and chosen != f"{__package__}:LockcacheManager":
        raise UnsupportedError(f"it has another cache manager, {chosen}")
    return None, functools.partial(setattr, cache, _CHOSEN)


def _look_for_doors() -> None:
    import triton

    with looking_for_doors("triton", triton.__version__, _OLDEST_TRIED):
        from triton.runtime import cache
        from triton.runtime.cache import CacheManager

        knobs = _knobs()
        if knobs is None:
            getattr(cache, _CHOSEN)
        else:
            knobs.cache, knobs.compilation.use_ir_loc  # noqa: B018
        if CacheManager.__abstractmethods__ != _METHODS:
            raise UnsupportedError(f"its cache managers have {sorted(CacheManager.__abstractmethods__)}")


def _open(path: str | os.PathLike[str] | None = None, cap_bytes: int | None = None) -> Shared:
    import triton

    _look_for_doors()
    return open_shared("triton", triton.__version__, path, cap_bytes, runs_code=True)


@functools.cache
def _shared() -> Shared | None:
    """Returns the cache that :func:`install` opened, or else the one that the variables name. Tries it once only."""
    install_adapter("triton", _open)
    return installed("triton")


def __getattr__(name: str) -> Any:
    # Made when Triton asks for it: this module can be imported without Triton.
    if name == "LockcacheManager":
        return _manager_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _manager_class() -> Any:
    from triton.runtime.cache import CacheManager, FileCacheManager

    knobs = _knobs()

    def uses_ir_loc() -> Any:
        return os.environ.get("USE_IR_LOC") if knobs is None else knobs.compilation.use_ir_loc

    class LockcacheManager(CacheManager):  # type: ignore[misc]
        """The files of one Triton key: those of a kernel, or a launcher. One is made for each compilation."""

        def __new__(cls, key: str, override: bool = False, dump: bool = False) -> Any:
            shared = _shared()
            if shared is None or shared.has_failed or override or dump or uses_ir_loc():
                return FileCacheManager(key, override, dump)
            return super().__new__(cls)

        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            shared = _shared()
            if shared is not None:  # else there is no such manager
                self._files = _Files(shared, key, FileCacheManager)

        def get_group(self, filename: str) -> dict[str, str] | None:
            return self._files.look_up(filename, is_group=True)

        def get_file(self, filename: str) -> str | None:
            return self._files.path_of(filename)

        def put(self, data: Any, filename: str, binary: bool = True) -> str:
            return self._files.put(filename, data if isinstance(data, bytes) else str(data).encode())

        def put_group(self, filename: str, group: dict[str, str]) -> None:
            self._files.put_group(filename, group)

    LockcacheManager.__module__, LockcacheManager.__qualname__ = str(__package__), "LockcacheManager"
    _end_turns_where_compiling_raises()
    return LockcacheManager


def _end_turns_where_compiling_raises() -> None:
    """Wrap the steps of a compilation, so that one that raises gives its turn up, also where its exception is kept.

    Triton looks each of them up when it takes it. ``compile`` itself is bound to names all over Triton and Inductor.
    Where a version has another step, a turn ends when the exception goes.
    """
    from triton import backends
    from triton.compiler import compiler
    from triton.runtime import build

    def add_stages_of(own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def add_stages(self: Any, stages: dict[str, Any], *rest: Any, **options: Any) -> Any:
            found = own(self, stages, *rest, **options)
            for name, stage in stages.items():
                stages[name] = _ending_turn(stage)
            return found

        return add_stages

    add_constants_to_keys(compiler.ASTSource)
    asked.note_of(compiler, backends)
    with contextlib.suppress(AttributeError):
        for source in (compiler.ASTSource, compiler.IRSource):
            _end_turns_of(source)
            _end_turns_of_later(source)
        for backend in {each.compiler for each in backends.backends.values()}:
            backend.add_stages = add_stages_of(backend.add_stages)
        build._build = _ending_turn(build._build)


def _end_turns_of(source: Any) -> None:
    """Wrap the step that a kind of source brings along, and those of the kinds that are derived from it."""
    if "make_ir" in vars(source):
        source.make_ir = _ending_turn(source.make_ir)
    for derived in source.__subclasses__():
        _end_turns_of(derived)


def _end_turns_of_later(source: Any) -> None:
    """Wrap the steps of kinds of source that are derived later: Gluon's may be imported after this."""

    def begin(derived: Any, /, **options: Any) -> None:
        super(source, derived).__init_subclass__(**options)
        _end_turns_of(derived)

    source.__init_subclass__ = classmethod(begin)


def _ending_turn(step: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` of the innermost compilation of this thread; if it raises, that one gives its turn up.

    The innermost when the step begins: another one may begin and end within it, or still be there when it raises.
    """

    @functools.wraps(step)
    def call(*args: Any, **options: Any) -> Any:
        files = [None, *_compiling()][-1]
        try:
            return step(*args, **options)
        except BaseException as error:
            if files is not None:
                files.give_up(failed=isinstance(error, Exception))
            raise

    return call


# Of each thread, those that began with a turn, the innermost last.
_begun = threading.local()


def _compiling() -> list[_Files]:
    """Returns the files of this thread's compilations that still have their turn, the innermost last."""
    begun: list[weakref.ref[_Files]] = _begun.__dict__.setdefault("compiling", [])
    found = [files for each in begun if (files := each()) is not None and files._turn is not None]
    begun[:] = map(weakref.ref, found)
    return found


class _Files:
    """What a manager has looked up and stored. Its turn ends at the latest when it is collected."""

    def __init__(self, shared: Shared, key: str, own_manager: Any) -> None:
        self._shared, self._key, self._own_manager = shared, key, own_manager
        self._turn: Turn[Entry] | None = None
        # Held until Triton has loaded what it was given.
        self._views: list[ViewPath] = []
        self._is_group = False
        # Of a group that is being compiled.
        self._contents: dict[str, bytes] = {}
        self._folder = ""

    def look_up(self, filename: str, *, is_group: bool) -> dict[str, str] | None:
        """The paths of what is stored. On a miss this has the turn to compile it, but for what nobody waits for."""
        self._is_group = is_group
        name = stored_name(self._key, filename)
        view = self._shared.view(name)
        if view is not None:
            return self._shown(view)
        if filename.endswith(_AUTOTUNED):
            found: Any = self._shared.look_at_files(name)
        else:
            label = filename.removesuffix(".json")
            found = self._shared.begin_files(name, label, asked.take(label) or _parts_of_file(self._key, filename))
        if isinstance(found, Turn):
            self._turn = found
            _compiling()
            _begun.compiling.append(weakref.ref(self))
            return None
        return None if found is None else self._shown_or_written(name, found)

    def give_up(self, *, failed: bool = False) -> None:
        """Let another process compile this; all that wait for it, if it cannot be compiled."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._shared.give_up(turn, failed=failed)

    def path_of(self, filename: str) -> str | None:
        """The path of one file: of a group that is being compiled, or by itself."""
        if filename in self._contents:
            return self._written({filename: self._contents[filename]})[filename]
        found = self.look_up(filename, is_group=False)
        return None if found is None else found.get(filename)

    def put(self, filename: str, content: bytes) -> str:
        """Store a file by itself, or keep one of a group until that is whole. Returns its path."""
        if self._is_group:
            self._contents[filename] = content
            return self._written({filename: content})[filename]
        return self._store(filename, {filename: content}, {})[filename]

    def put_group(self, filename: str, group: dict[str, str]) -> None:
        """Store what was put, and have ``group``, by which Triton loads it next, lead to what is stored."""
        contents, self._contents = self._contents, {}
        # With TRITON_ALWAYS_COMPILE it begins as what was found.
        files = {name: contents[name] for name in group if name in contents}
        stored = self._store(filename, files, describe_metadata(files.get(filename, b"")))
        group.clear()
        group.update(stored)

    def _store(self, filename: str, files: dict[str, bytes], metadata: dict[str, str]) -> dict[str, str]:
        name, turn = stored_name(self._key, filename), self._turn
        self._turn = None
        self._shared.store_files(name, files, turn, **metadata)
        return self._shown_or_written(name, files)

    def _shown_or_written(self, name: str, files: dict[str, bytes]) -> dict[str, str]:
        view = self._shared.view_again(name)
        return self._written(files) if view is None else self._shown(view)

    def _shown(self, view: ViewPath) -> dict[str, str]:
        self._views.append(view)
        if "torch._inductor" in sys.modules and any(name.endswith(_BINARIES) for name in view.names):
            link_for_inductor(self._key, view)
        _folders.remove(self._folder)
        self._folder = ""
        return {name: f"{view}/{name}" for name in view.names}

    def _written(self, files: dict[str, bytes]) -> dict[str, str]:
        """The paths of these files in a folder that is this process's alone."""
        try:
            if not _folders.has(self._folder):
                self._folder = _folders.make()
            for name, content in files.items():
                with open(f"{self._folder}/{name}", "wb") as file:
                    file.write(content)
        except OSError as error:
            warn("triton", error)
            own = self._own_manager(self._key)
            return {name: own.put(content, name) for name, content in files.items()}
        return {name: f"{self._folder}/{name}" for name in files}


def _parts_of_file(key: str, filename: str) -> Parts | None:
    """Returns what says the parts of the key of a launcher; ``None`` for another file."""
    return functools.partial(parts_of_launcher, key, filename) if filename.endswith(_LIBRARY) else None


def stored_name(key: str, filename: str) -> str:
    """Returns the name of a file, or of a group by its first one, of the key that Triton has for it.

    Triton's key of a launcher says neither which C library it needs nor which compiler the program names for it.
    """
    name = f"{key}/{filename}"
    if not filename.endswith(_LIBRARY):
        return name
    return f"{name}/{c_library()} {os.environ.get('CC', '')} {os.environ.get('CXX', '')}"


_folders = TemporaryFolders("triton")


def describe_metadata(metadata: bytes) -> dict[str, str]:
    """Returns the architecture and compiler that Triton's metadata state, for people."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        said = json.loads(metadata)
        return {"arch": str(said["target"]["arch"]), "compiler": f"triton {said['triton_version']}"}
    return {}
