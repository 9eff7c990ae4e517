# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Warp's modules on lockcache: each compiled once by all processes of a machine. Experimental.

:func:`install`, before the first launch; or ``lockcache run``. The directory is ``$LOCKCACHE_DIR``. Warp has no cache
object, its loaders take a path: so the files of a module are one entry, and Warp's own directory
(``$WARP_CACHE_PATH``) is what they are written to for loading, compared with the entry each time. That directory is not
under the cap.

Keys are Warp's hash of a module, with the CPU's instructions for one that is compiled for the CPU, and with the places
of its functions in their files for one that has line information. A module that includes files, by a native snippet or
an option, stays in Warp's own directory, since the hash has their names only.
``clear_kernel_cache()`` has this process compile each module again, and replace its entry.

A module for the CPU is machine code: who may write to the directory may run code in the processes that read it. A
directory that others write to needs a signing key. Modules that are compiled ahead of time, into a folder of the
caller's, or without a hash in their name, are not stored, nor are those that Warp compiles again each time, to verify
how arrays are accessed.

Tried with Warp 1.15 to 1.19. If its private parts are others, Warp keeps its own cache, with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import re
import shutil
import threading
from collections.abc import Callable
from typing import Any, Final

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
    warn,
)
from lockcache.integrations.framework_keys import cpu_features
from lockcache.integrations.key_parts import parts_of_warp
from lockcache.integrations.staged import reap_folder, staged_name, write_whole
from lockcache.resource import Entry
from lockcache.single_flight import Turn

_OLDEST_TRIED = (1, 15)
# In a module's source, all that is included but Warp's own headers, which its version stands for.
_INCLUDE: Final = re.compile(rb"#\s*include(?!\s*\"(?:builtin|deterministic)\.h\")|__has_include|#\s*embed")
_SOURCES: Final = (".cu", ".cpp")
_PARAMETERS = ["self", "device", "output_dir", "output_name", "output_arch", "use_ptx", "options"]


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make Warp keep its modules in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first launch.

    Returns whether it does. If it cannot, a warning says why, and Warp's own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("warp", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import warp

    with looking_for_doors("warp", warp.config.version, _OLDEST_TRIED):
        from warp._src import build, context

        own = context.Module._compile
        if [*inspect.signature(own).parameters] != _PARAMETERS:
            raise UnsupportedError(f"its Module._compile takes {inspect.signature(own)}")
        for name in ("get_module_hash", "_get_meta_name"):
            getattr(context.Module, name)
        clear = build.clear_kernel_cache
    shared = open_shared("warp", warp.config.version, path, cap_bytes, runs_code=True)
    cleared = _Cleared()
    warp.clear_kernel_cache = build.clear_kernel_cache = cleared.noting(clear)
    context.Module._compile = _sharing(own, warp.config, shared, cleared)
    return shared


def _sharing(own: Callable[..., Any], config: Any, shared: Shared, cleared: _Cleared) -> Callable[..., Any]:
    """``own``, Warp's way to compile a module, which takes what is stored and stores what it compiles."""

    def compile_module(
        self: Any,
        device: Any = None,
        output_dir: Any = None,
        output_name: Any = None,
        output_arch: Any = None,
        use_ptx: Any = None,
        options: Any = None,
    ) -> Any:
        def compile_into(folder: Any) -> Any:
            return own(self, device, folder, output_name, output_arch, use_ptx, options)

        is_loading = output_dir is not None and output_name is not None and options is not None
        if not is_loading or shared.has_failed or self.options["strip_hash"] or not config.cache_kernels:
            return compile_into(output_dir)
        if _is_left_to_warp(shared, options, output_dir):
            return compile_into(output_dir)
        key, wanted = "", {output_name}
        features = cpu_features() if output_arch is None else ""  # Warp before 1.19 does not say for which CPU
        with shared.never_raising():
            wanted.add(self._get_meta_name(block_dim=options["block_dim"]))
            key = _key_of(self, options, f"{use_ptx}/{output_name}", features)
        if not key:
            return compile_into(output_dir)
        parts = functools.partial(parts_of_warp, self, options, output_arch, use_ptx, features)
        again = cleared.is_to_be_renewed(key)
        found = shared.begin_files(key, self.name, parts, renews=again)
        if isinstance(found, dict) and wanted <= found.keys() and _write(output_dir, found):
            return False
        with shared.holding(found) as turn:
            files = _compiled(compile_into, output_dir)
            if files is None or not wanted <= files.keys() or not _write(output_dir, files):
                return compile_into(output_dir)
            arch = "" if output_arch is None else f"sm_{output_arch}"
            _store(shared, key, files, turn, arch=arch, label=self.name)
            cleared.note_renewed(key)
        return True

    return compile_module


def _is_left_to_warp(shared: Shared, options: Any, output_dir: str) -> bool:
    """Returns whether a module is compiled in Warp's own way."""
    if options.get("verify_autograd_array_access"):  # which is done while compiling
        return True
    if any(value for name, value in options.items() if name.startswith("extra_")):
        shared.note_unshared("the headers that a module's options name are not in its key")
        return True
    return _has_more_included(output_dir)  # as was found when it was compiled


def _key_of(module: Any, options: Any, output: str, features: str) -> str:
    # The whole hash, of which the directory's name has seven digits.
    parts = [module.name, module.get_module_hash(options["block_dim"]).hex(), output]
    parts += [features] if features else []
    return "/".join([*parts, _places_of(module)] if _has_lines(options) else parts)


def _has_lines(options: Any) -> bool:
    """Returns whether the output names the places of functions in their files, which are not in Warp's hash."""
    has_lines = options.get("lineinfo") or options.get("mode") == "debug"
    return bool(has_lines and options.get("line_directives", True))


def _places_of(module: Any) -> str:
    """Returns a digest of the places of all kernels of a module, and of the functions that they call."""
    found, left = set[str](), [kernel.adj for kernel in module._get_live_kernels()]
    while left:
        adjoint = left.pop()
        place = f"{adjoint.filename}:{adjoint.fun_lineno}:{adjoint.fun_name}"
        if place in found:
            continue
        found.add(place)
        called = {*adjoint.get_references()[2], *adjoint.resolved_static_expressions.values()}
        for function in called:
            overloads = {**getattr(function, "user_overloads", {}), **getattr(function, "user_templates", {})}
            left += [each.adj for each in overloads.values()]
    return hashlib.sha256("\n".join(sorted(found)).encode(), usedforsecurity=False).hexdigest()


def _store(shared: Shared, key: str, files: dict[str, bytes], turn: Turn[Entry] | None, **metadata: str) -> None:
    """Store a module, if its source includes no more than its hash stands for."""
    if not _includes_more(files):
        shared.store_files(key, files, turn, **metadata)
        return
    why = "what a native snippet includes is not in its module's key"
    shared.note_unshared(why, metadata["label"], had_turn=turn is not None)
    if turn is not None:
        shared.give_up(turn, failed=True)


class _Cleared:
    """The modules that this process compiles again, because the program has cleared Warp's cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cleared = False
        self._renewed: set[str] = set()

    def noting(self, clear: Callable[..., Any]) -> Callable[..., Any]:
        """``clear``, after which each module is compiled once more."""

        @functools.wraps(clear)
        def clear_kernel_cache(*args: Any, **options: Any) -> Any:
            try:
                return clear(*args, **options)
            finally:
                with self._lock:
                    self._is_cleared = True
                    self._renewed.clear()

        return clear_kernel_cache

    def is_to_be_renewed(self, key: str) -> bool:
        """Returns whether an entry may be older than the last clearing."""
        with self._lock:
            return self._is_cleared and key not in self._renewed

    def note_renewed(self, key: str) -> None:
        """Note that this process has stored the entry since."""
        with self._lock:
            if self._is_cleared:
                self._renewed.add(key)


def _includes_more(files: dict[str, bytes]) -> bool:
    """Returns whether a module's source includes what its hash says nothing of, or is not there to tell."""
    sources = [content for name, content in files.items() if name.endswith(_SOURCES)]
    return not sources or any(map(_INCLUDE.search, sources))


def _has_more_included(output_dir: str) -> bool:
    """Returns whether Warp's own directory has a module that cannot be shared."""
    with contextlib.suppress(OSError):
        sources = [name for name in os.listdir(output_dir) if name.endswith(_SOURCES)]
        return any(_INCLUDE.search(_read(f"{output_dir}/{name}") or b"") for name in sources)
    return False


def _compiled(compile_into: Any, output_dir: str) -> dict[str, bytes] | None:
    """The files that Warp makes of a module, in a folder that nobody else looks into. ``None`` without one."""
    above = os.path.dirname(output_dir)
    reap_folder(above)
    folder = f"{above}/{staged_name('warp')}"
    try:
        os.makedirs(folder, mode=0o700)
    except OSError:
        return None
    try:
        made = os.path.join(folder, os.path.basename(output_dir))
        compile_into(made)  # its error is the program's
        with contextlib.suppress(OSError):
            found = {name: _read(f"{made}/{name}") for name in sorted(os.listdir(made))}
            return {name: content for name, content in found.items() if content is not None}
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(output_dir: str, files: dict[str, bytes]) -> bool:
    """Make Warp's directory have these files, each whole. Returns whether it has them."""
    for name, content in files.items():
        path = f"{output_dir}/{name}"
        if _read(path) != content and not write_whole(path, content, "warp", 0o666):
            warn("warp", OSError(f"{path} cannot be written"))
            return False
    return True


def _read(path: str) -> bytes | None:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read()
    return None
