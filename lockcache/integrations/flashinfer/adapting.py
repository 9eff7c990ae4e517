# SPDX-License-Identifier: Apache-2.0
"""Installs the adapter: looks for all parts of FlashInfer that it needs, and has FlashInfer use them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
from pathlib import Path
from typing import Any, Final

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)
from lockcache.integrations.cpp_extension import BUILD_FILE, Libraries, read_whole
from lockcache.integrations.flashinfer.installed import Installed
from lockcache.integrations.flashinfer.keys import FlashInfer
from lockcache.integrations.framework_keys import UnkeyableError

__all__ = ["install", "relative"]

_OLDEST_TRIED = (0, 7, 2)
#: FlashInfer waits for ever for another process's build, which takes minutes; a dead one's turn falls at once.
_PATIENCE_SECONDS = 3600.0
# Ninja removes the lists of headers that it reads, and nobody builds in that folder again.
_READ_LISTS: Final = re.compile(r"^  deps = gcc\n", re.MULTILINE)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make FlashInfer keep its libraries in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first is used.

    Returns whether it does. If it cannot, a warning says why, and FlashInfer builds as before. A second call changes
    nothing.
    """
    return install_adapter("flashinfer", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    from flashinfer.version import __version__ as version

    with looking_for_doors("flashinfer", version, _OLDEST_TRIED):
        import tvm_ffi
        from flashinfer.jit import core, env

        own_run = core.run_ninja
        if [*inspect.signature(own_run).parameters][:3] != ["workdir", "ninja_file", "verbose"]:
            raise UnsupportedError(f"its run_ninja takes {inspect.signature(own_run)}")
        folders = [env.FLASHINFER_INCLUDE_DIR, env.FLASHINFER_CSRC_DIR, env.SPDLOG_INCLUDE_DIR]
        folders += [*env.CUTLASS_INCLUDE_DIRS, *getattr(env, "CCCL_INCLUDE_DIRS", ())]
        workspace, data = str(env.FLASHINFER_WORKSPACE_DIR), str(env.FLASHINFER_DATA)
        ffi = [tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()]
    installed = [Installed("flashinfer-python", data, folders), Installed("apache-tvm-ffi", ffi[0], ffi)]
    for each in installed:
        with contextlib.suppress(UnkeyableError, OSError):
            each.described  # noqa: B018 - read once, and not while somebody waits for a library
    shared = open_shared("flashinfer", version, path, cap_bytes, runs_code=True, patience_seconds=_PATIENCE_SECONDS)

    @functools.wraps(own_run)
    def run(workdir: Path, ninja_file: Path, verbose: bool, *args: Any, **options: Any) -> None:
        def build(staged: str) -> None:
            own_run(Path(staged), Path(staged, BUILD_FILE), verbose, *args, **options)

        folder = str(workdir.resolve())
        content = read_whole(str(ninja_file)) if ninja_file.name == BUILD_FILE else None
        text = relative((content or b"").decode(errors="surrogateescape"), folder)
        framework = FlashInfer(installed, workspace, text)
        if not Libraries(shared, framework, framework).have(folder, text, build):
            own_run(workdir, ninja_file, verbose, *args, **options)

    core.run_ninja = run
    return shared


def relative(text: str, folder: str) -> str:
    """Returns a build file that builds in the folder that it lies in, and leaves lists of all headers that were read.

    FlashInfer's own names the folder in each path, and lists headers of the system for nvcc's sources alone.
    """
    outputs = text.replace(f" {folder}/", " ")
    return _READ_LISTS.sub("", outputs).replace(" -MMD -MF ", " -MD -MF ")
