"""NVIDIA Warp's modules on lockcache: each compiled once by all processes of a machine. Experimental.

:func:`install`, before the first launch; or ``lockcache run``. The directory is ``$LOCKCACHE_DIR``. Warp has no cache
object, its loaders take a path: so the files of a module are one entry, and Warp's own directory
(``$WARP_CACHE_PATH``) is what they are written to for loading, compared with the entry each time. That directory is not
under the cap.

A module for the CPU is machine code: who may write to the directory may run code in the processes that read it. A
directory that others write to needs a signing key. Modules that are compiled ahead of time, into a folder of the
caller's, or without a hash in their name, are not stored, nor are those that Warp compiles again each time, to verify
how arrays are accessed.

Tried with Warp 1.15 to 1.19. If its private parts are others, Warp keeps its own cache, with a warning.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
from typing import Any

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
    warn,
)
from lockcache.integrations.staged import reap_folder, staged_name
from lockcache.single_flight import Turn

_OLDEST_TRIED = (1, 15)
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
        from warp._src import context

        own = context.Module._compile
        if [*inspect.signature(own).parameters] != _PARAMETERS:
            raise UnsupportedError(f"its Module._compile takes {inspect.signature(own)}")
        for name in ("get_module_hash", "_get_meta_name"):
            getattr(context.Module, name)
    shared = open_shared("warp", warp.config.version, path, cap_bytes, runs_code=True)

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
        if not is_loading or shared.has_failed or self.options["strip_hash"] or not warp.config.cache_kernels:
            return compile_into(output_dir)
        if options.get("verify_autograd_array_access"):  # which is done while compiling
            return compile_into(output_dir)
        block_dim = options["block_dim"]
        # The whole hash, of which the directory's name has seven digits.
        key = f"{self.name}/{self.get_module_hash(block_dim).hex()}/{use_ptx}/{output_name}"
        wanted = {output_name, self._get_meta_name(block_dim=block_dim)}
        found = shared.begin_files(key, self.name)
        if isinstance(found, dict) and wanted <= found.keys() and _write(output_dir, found):
            return False
        with found if isinstance(found, Turn) else contextlib.nullcontext() as turn:
            files = _compiled(compile_into, output_dir)
            if files is None or not wanted <= files.keys() or not _write(output_dir, files):
                return compile_into(output_dir)
            shared.store_files(key, files, turn, arch="" if output_arch is None else f"sm_{output_arch}")
        return True

    context.Module._compile = compile_module
    return shared


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
    """Make Warp's directory have these files, each whole; whether it has them."""
    try:
        os.makedirs(output_dir, exist_ok=True)
        missing = {name: content for name, content in files.items() if _read(f"{output_dir}/{name}") != content}
        if missing:
            reap_folder(output_dir)
        for name, content in missing.items():
            staged = f"{output_dir}/{staged_name('warp')}"
            with open(staged, "xb") as file:
                file.write(content)
            os.replace(staged, f"{output_dir}/{name}")
    except OSError as error:
        warn("warp", error)
        return False
    return True


def _read(path: str) -> bytes | None:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read()
    return None
