# SPDX-License-Identifier: Apache-2.0
"""C++ builds of Inductor on lockcache: kernels, their parts, and trials of vector instructions.

Inductor has a process of its own load each trial that it has not tried yet. That one was loaded so is stored too, with
the library's digest, and then this process loads it: what the library needs may be missing here.

By turns, so that one process builds each; a file appears in Inductor's directory whole, by one rename. The header that
Inductor has precompiled for its kernels (150 MB, and only for the compiler that made it) is not stored: it is
precompiled when the first kernel is really built, and not at all where every kernel is found.

Keeps invariant 7 (never take the job down): what cannot be shared, Inductor builds as without lockcache. Keeps
invariant 5 (death is free): a staged file has its owner's name, and goes with the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from lockcache.errors import UncacheableError
from lockcache.integrations.adapter import Shared
from lockcache.integrations.framework_keys import (
    UnkeyableError,
    describe_machine,
    digest,
    key_of,
    parts_of,
    read_file,
)
from lockcache.integrations.inductor.spans import Spans
from lockcache.integrations.staged import write_whole

__all__ = ["share_builds"]

_log = logging.getLogger("lockcache")

_SHARED = (".so", ".o")
_NAME = "built"


def share_builds(shared: Shared, spans: Spans) -> None:
    """Have Inductor's builder of C++ look on lockcache first. ``spans`` notes when it builds or waits for a build.

    Where the builder has other parts than expected, each node builds for itself, and one line says so.
    """
    try:
        _Builds(shared, spans).install()
    except (AttributeError, ImportError, OSError, UnkeyableError) as error:
        _log.warning("inductor builds its C++ kernels on each node: %s", error)


class _Builds:
    def __init__(self, shared: Shared, spans: Spans) -> None:
        from torch import __file__ as torch_file, version
        from torch._inductor import codecache, config, cpp_builder, cpu_vec_isa
        from torch._inductor.runtime.runtime_utils import cache_dir

        self._shared, self._spans = shared, spans
        self._builder = builder = cpp_builder.CppBuilder
        self._own_build = builder.build
        builder.get_target_file_path, builder.get_command_line  # noqa: B018 - doors
        if config.is_fbcode():
            raise AttributeError("they are built by another machine")
        self._describe_compiler = cpp_builder.get_compiler_version_info
        self._cache_dir = cache_dir
        self._torch = os.path.dirname(os.path.abspath(torch_file))
        self._git_version = str(version.git_version)
        # By the path that Inductor is given at first: how to precompile it, and what the header contains.
        self._headers: dict[str, tuple[Callable[[], str], bytes]] = {}
        self._module: Any = codecache
        self._own_precompile: Any = getattr(codecache, "_precompile_header", None)  # not in torch 2.6
        self._isa: Any = cpu_vec_isa.VecISA
        self._own_try: Any = getattr(cpu_vec_isa.VecISA, "_probe_load", None)  # not in torch 2.6
        # Keys of the libraries that this process found or stored.
        self._keys: dict[str, str] = {}

    def install(self) -> None:
        describe_machine()  # which every key needs

        def build(builder: Any) -> Any:
            with self._spans.noting():
                return self._build(builder)

        def try_to_load(isa: Any, path: str) -> bool:
            with self._spans.noting():
                return self._try(isa, path)

        self._builder.build = build
        if self._own_precompile is not None:
            self._module._precompile_header = self._precompile_later
        if self._own_try is not None:
            self._isa._probe_load = try_to_load

    def _build(self, builder: Any) -> Any:
        parts = None if self._shared.has_failed else self._parts_of(builder)
        if parts is None:
            return self._really_build(builder)
        target, key = builder.get_target_file_path(), f"cpp/{key_of(parts)}"
        label = os.path.basename(target)
        found = self._shared.begin_files(key, label, lambda: parts)
        if isinstance(found, dict):
            if _NAME in found and write_whole(target, found[_NAME], "inductor"):
                self._keys[target] = key
                return b"", target  # as torch 2.6 does; later ones return nothing, and nobody asks for it
            return self._really_build(builder)
        with self._shared.holding(found) as turn:
            began_ns = time.perf_counter_ns()
            made = self._really_build(builder)
            cost_ns = time.perf_counter_ns() - began_ns
            with contextlib.suppress(OSError, UnkeyableError):
                content = read_file(target)
                # Not if a source or a header was changed meanwhile, nor an empty file, which no compiler makes.
                if content and self._parts_of(builder) == parts:
                    self._shared.store_files(key, {_NAME: content}, turn, compile_cost_ns=cost_ns)
                    self._keys[target] = key
        return made

    def _try(self, isa: Any, path: str) -> bool:
        """Returns whether a trial can be loaded, which Inductor finds out by a process of its own."""
        key, content = self._keys.get(path), b""
        if key is None or self._shared.has_failed:
            return bool(self._own_try(isa, path))
        with contextlib.suppress(OSError, UnkeyableError):
            content = digest(read_file(path)).encode()
        if content and self._shared.look(f"{key}/loaded") == content and _is_loaded(path):
            return True
        began_ns = time.perf_counter_ns()
        is_loaded = bool(self._own_try(isa, path))
        if is_loaded and content:
            self._shared.store(f"{key}/loaded", content, compile_cost_ns=time.perf_counter_ns() - began_ns)
        return is_loaded

    def _parts_of(self, builder: Any) -> dict[str, str] | None:
        """Returns the parts of a build's key; ``None`` for one that is not shared."""
        try:
            target = builder.get_target_file_path()
            if not target.endswith(_SHARED) or builder._aot_mode:
                return None  # a header, or what goes into a package of the program's own
            roots = {self._torch: "$TORCH", self._cache_dir(): "$INDUCTOR"}
            texts = {path: text for path, (_, text) in self._headers.items()}
            command, closures = builder.get_command_line(), self._shared.cache._closures
            parts = parts_of(command, target, roots, texts, self._describe_compiler, closures)
            return {**parts, "torch": self._git_version}
        except (UncacheableError, UnkeyableError, OSError) as error:
            _log.info("inductor builds %s for itself: %s", getattr(builder, "_name", "C++"), error)
        except Exception as error:  # noqa: BLE001 - a part of torch's that is not what it was
            self._builder.build = self._own_build
            if self._own_precompile is not None:
                self._module._precompile_header = self._own_precompile
            if self._own_try is not None:
                self._isa._probe_load = self._own_try
            _log.warning("inductor builds its C++ kernels on each node: %s: %s", type(error).__name__, error)
        return None

    def _really_build(self, builder: Any) -> Any:
        """Have Inductor build it, with the headers that it wanted to have precompiled."""
        arguments = getattr(builder, "_include_dirs_args", "")
        for path, (precompile, _) in [*self._headers.items()]:
            if path in arguments:
                arguments = builder._include_dirs_args = arguments.replace(path, precompile())
        return self._own_build(builder)

    def _precompile_later(self, header: str, command: str, **options: Any) -> Any:
        """Returns the path of a header that is precompiled when something is built with it.

        The header is written there too, so that whatever builds with it in another way finds it, if not precompiled.
        """
        own = functools.partial(self._own_precompile, header, command, **options)
        if self._shared.has_failed or options.get("aot_mode"):
            return own()
        text = f"#include <{header}>\n".encode()
        name = hashlib.sha256(repr((header, command, sorted(options.items(), key=str))).encode()).hexdigest()
        path = os.path.join(self._module._HEADER_DIR, f"lockcache-{name[:32]}.h")
        if not (os.path.isfile(path) or write_whole(path, text, "inductor")):
            return own()
        self._headers[path] = (own, text)
        return path


def _is_loaded(path: str) -> bool:
    try:
        ctypes.CDLL(path)  # for the rest of the process: what a kernel needs stays loaded too
    except OSError:
        return False
    return True
