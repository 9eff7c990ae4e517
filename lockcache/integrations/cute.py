# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL on lockcache: each kernel compiled once, whether ``cute.compile`` or a call of a ``cute.jit`` function asks.

:func:`install`, before the first compilation. The directory is ``$LOCKCACHE_DIR``. CuTe DSL caches nothing of
``cute.compile``, and what it compiles for a call in a directory of its own (``$CUTE_DSL_CACHE_DIR``), which is neither
read nor written then. The functions are traced by each process; what is shared is what the compiler makes of the trace.

A key is all that the compiler is given: the traced program, without the places in source files unless line information
is asked for, the passes with their options, the versions of the packages, and the name of the library that compiles:
where those of several CUDA toolkits are installed, the driver decides. Not cached is what leaves more than the compiled
program: kept PTX, cubins and SASS, remarks and diagnostics; and what names files, as external libraries do.
``CUTE_DSL_NO_CACHE`` and ``CUTE_DSL_DISABLE_FILE_CACHING`` have nothing read or stored.

An entry is code for the GPU, and code for the CPU that launches it: who may write to the directory may run code in the
processes that read it. A directory that others write to needs a signing key.

Tried with nvidia-cutlass-dsl 4.8.1. If its private parts are others, CuTe DSL keeps its own cache, with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import os
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from lockcache.integrations.adapter import (
    Parts,
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
    warn,
)
from lockcache.integrations.key_parts import parts_of_cute

__all__ = ["install"]

_OLDEST_TRIED = (4, 8)
_PACKAGE = "nvidia-cutlass-dsl"
#: What the compiler is in: the package itself has only Python.
_LIBRARIES = tuple(f"{_PACKAGE}-libs-{name}" for name in ("base", "core", "cu12", "cu13"))
#: Options of the passes that name a file, which may have no directory, to read or to write.
_OF_FILES = ("link-libraries=", "-path=")
#: Where these stand in the options of the passes, no place in a source file reaches the output.
_WITHOUT_LINES = "preserve-line-info=false"


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make CuTe DSL keep what it compiles in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and CuTe DSL's own cache is as it was. A second call
    changes nothing.
    """
    return install_adapter("cute", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    version = metadata.version(_PACKAGE)
    with looking_for_doors(_PACKAGE, version, _OLDEST_TRIED):
        from cutlass._mlir import _mlir_libs, ir, passmanager
        from cutlass.base_dsl import compile_backend
        from cutlass.base_dsl.compiler import Compiler
        from cutlass.base_dsl.dsl import BaseDSL
        from cutlass.cutlass_dsl import CuTeDSL

        own_compile, own_step = Compiler.compile, BaseDSL._compile_or_jit_module
        own_load, own_dump = compile_backend.load_cache_from_path, compile_backend.dump_cache_to_path
        toolkit = os.path.basename(_mlir_libs._cutlass_ir.__file__)
        if "return_module" not in inspect.signature(Compiler.compile_and_jit).parameters:
            raise UnsupportedError("its compiler returns no module")
        _is_to_be_cached(CuTeDSL._get_dsl())  # has all settings that are asked below
    shared = open_shared("cute", f"{_describe_versions(version)}/{toolkit}", path, cap_bytes, runs_code=True)
    program = _Program(shared, ir, passmanager.PassManager.parse)

    @functools.wraps(own_step)
    def compile_or_jit(self: Any, module: Any, pipeline: str, function_name: str, *args: Any, **kwargs: Any) -> Any:
        with program.named(program.name_of(self, function_name)):
            return own_step(self, module, pipeline, function_name, *args, **kwargs)

    # Only within the other one, where turns end: what is between them makes another error of each that it sees.
    @functools.wraps(own_compile)
    def compile_module(self: Any, module: Any, pipeline: str, *args: Any, **kwargs: Any) -> Any:
        own = functools.partial(own_compile, self, module, pipeline, *args, **kwargs)
        asked = program.asked_for(module, pipeline, args, kwargs)
        return own() if asked is None else program.compile(self, module, asked, own)

    def load(*args: Any, **kwargs: Any) -> Any:
        return own_load(*args, **kwargs) if shared.has_failed else None

    def dump(*args: Any, **kwargs: Any) -> None:
        if shared.has_failed:
            own_dump(*args, **kwargs)

    BaseDSL._compile_or_jit_module = shared.compiling(compile_or_jit)
    Compiler.compile = compile_module
    compile_backend.load_cache_from_path, compile_backend.dump_cache_to_path = load, dump
    return shared


class _Compilation(NamedTuple):
    """A function that is to be cached, and its key: all that the compiler is given."""

    name: str
    key: str
    #: Says what the key is made of.
    parts: Parts


class _Program:
    """What a thread compiles, and how a program is looked up and stored."""

    def __init__(self, shared: Shared, ir: Any, make_passes: Callable[[str], Any]) -> None:
        self._shared, self._ir, self._make_passes = shared, ir, make_passes
        self._thread = threading.local()

    @property
    def name(self) -> str:
        """The name of the function that is compiled in this thread; empty if nothing is, or it is not to be cached."""
        return getattr(self._thread, "name", "")

    @contextlib.contextmanager
    def named(self, name: str) -> Any:
        """A block in which a function is compiled, if it has a ``name``."""
        before, self._thread.name = self.name, name
        try:
            yield
        finally:
            self._thread.name = before

    def name_of(self, dsl: Any, function_name: str) -> str:
        """Returns the name of a function that is to be cached, else nothing."""
        with self._shared.never_raising():
            return function_name if _is_to_be_cached(dsl) else ""
        return ""

    def asked_for(
        self, module: Any, pipeline: str, args: tuple[Any, ...], wanted: dict[str, Any]
    ) -> _Compilation | None:
        """Returns what is to be compiled; ``None`` if nothing is looked up or stored."""
        with self._shared.never_raising():
            if self.name and not self._shared.has_failed and _is_plain(pipeline, wanted):
                has_lines = wanted.get("enable_debug_info") or _WITHOUT_LINES not in pipeline
                code = _bytecode(module.operation if has_lines else self._without_places(module))
                given = repr((" ".join(pipeline.split()), args, sorted(wanted.items()))).encode()
                key = hashlib.sha256(b"%d/%s/%s" % (len(given), given, code)).hexdigest()
                return _Compilation(
                    self.name, key, functools.partial(parts_of_cute, self.name, code, pipeline, args, wanted)
                )
        return None

    def _without_places(self, module: Any) -> Any:
        """Returns a copy in which nothing says where in a source file it comes from; printing it would take longer."""
        copied = module.operation.clone()
        passes = self._make_passes("builtin.module(strip-debuginfo)")
        passes.enable_verifier(False)
        passes.run(copied)
        return copied

    def compile(self, compiler: Any, module: Any, asked: _Compilation, own: Any) -> Any:
        """Returns the compiled module: a stored one, or what ``own`` makes of ``module``, which is stored.

        What is to be done with each compiled module (``_post_compile_hook``) is done with one that was stored too.
        """
        found = self._shared.look_up(asked.key, asked.name, asked.parts)
        compiled = self._parsed(found, module.context)
        hook, compiler._post_compile_hook = compiler._post_compile_hook, None
        try:
            if compiled is None:
                compiled = own()
                with self._shared.never_raising():
                    self._shared.store(asked.key, _bytecode(compiled.operation))
        finally:
            compiler._post_compile_hook = hook
        if hook is not None:
            hook(compiled)
        return compiled

    def _parsed(self, found: bytes | None, context: Any) -> Any:
        if found is None:
            return None
        try:
            return self._ir.Module.parse(found, context)
        except Exception as error:  # noqa: BLE001  it is compiled again, and stored
            warn("cute", error)
            return None


def _describe_versions(version: str) -> str:
    found = [version]
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name.rpartition('-')[2]}-{metadata.version(name)}")
    return "/".join(found)


def _is_to_be_cached(dsl: Any) -> bool:
    """Returns whether nothing but the compiled program is wanted, and CuTe DSL's own cache is not switched off."""
    settings, options = dsl.envar, dsl.compile_options
    is_off = settings.no_cache or settings.disable_file_caching
    is_kept = settings.keep_tokens or options.full_ptx_path or options.full_cubin_path or options.dump_sass_path
    return not (is_off or is_kept or settings.warnings_as_errors)


def _is_plain(pipeline: str, wanted: dict[str, Any]) -> bool:
    """Returns whether the compiler is given no file to read or write, and says nothing that a hit would not say."""
    says_more = wanted.get("warnings_filter") or wanted.get("remark_output")
    names_files = "/" in pipeline or any(option in pipeline for option in _OF_FILES)
    return not (names_files or says_more or wanted.get("collect_compiler_diagnostics"))


def _bytecode(operation: Any) -> bytes:
    written = io.BytesIO()
    operation.write_bytecode(written)
    return written.getvalue()
