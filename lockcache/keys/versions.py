# SPDX-License-Identifier: Apache-2.0
"""Compiler versions: version and build of NVRTC, NVVM, nvJitLink, and of the driver where the driver links.

Keeps the rule that an upgraded compiler never serves what the old one made. The version that a library reports is
major.minor only (13.5 for every 13.5.x), so a fingerprint of the library file goes with it. The file's content decides,
not its path or time: the same wheel in two containers is the same compiler. Looked up once per process; a library is
never loaded twice.

NVRTC is not loaded at all for the keys of what is not compiled here: that takes 10 ms of processor time, five times as
much as all the rest of a process whose look-ups hit. Its version is in the names of its files, and its build in what
they contain. cuda.core finds NVRTC by cuda.pathfinder, whose own steps are taken here: what is loaded already, wheels,
conda. Where those find nothing (a toolkit that the dynamic linker finds), or pathfinder has others, it is loaded.

Without a version there is no key: compiling would fail as well, and a key without it could return code of another
compiler. A failure is not remembered, the next call tries again.
"""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Callable
from typing import Any, Final

from lockcache.errors import UncacheableError
from lockcache.keys import hashing

#: Bytes taken from each end of a library. Sized to reach the linker's build ID, the content hash that is its true name:
#: at 0x1c8 or 0x270 in nvJitLink, NVVM and the builtins 13.5, and 40 bytes before the end in NVRTC 13.5.
_END_BYTES = 64 * 1024

_LIBRARY: Final = re.compile(r"libnvrtc\.so\.(\d+)")
_BUILTINS: Final = re.compile(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)")


def nvrtc() -> bytes:
    """Returns the version of NVRTC, and of the library next to it with its device functions and bundled headers.

    It is that of :func:`load_nvrtc` once this was called, and until then that of the file that would be loaded. Who
    compiles afterwards calls that, and compares.
    """
    if _loaded is not None:
        return _loaded
    found = _find_nvrtc()
    return load_nvrtc() if found is None else found


def is_nvrtc_found() -> bool:
    """Returns whether the version of NVRTC is known by its file, and NVRTC was not loaded here so far."""
    try:
        return _loaded is None and (_found is not None or _find_nvrtc() is not None)
    except UncacheableError:
        return False


def _find_nvrtc() -> bytes | None:
    global _found
    if _found is None:
        file = _find_file()
        _found = file and _known(*_NVRTC, lambda: _nvrtc(*file))
    return _found


def load_nvrtc() -> bytes:
    """Load NVRTC, and return its version, which all keys have from now on."""
    global _loaded
    if _loaded is None:
        _loaded = _known(*_NVRTC, _loaded_nvrtc)
    return _loaded


_loaded: bytes | None = None
_found: bytes | None = None
_NVRTC: Final = ("NVRTC", "install nvidia-cuda-nvrtc")


def nvrtc_path() -> str | None:
    """Returns the file of the NVRTC that is loaded, or would be; ``None`` where to know takes loading it."""
    if _loaded is not None:
        return _library_path("nvrtc")
    found = _find_file()
    return None if found is None else found[0]


def nvrtc_build(path: str) -> bytes | None:
    """Returns what :func:`nvrtc` says of the file at this path; ``None`` where to know takes loading it."""
    found = _versioned(path)
    return None if found is None else hashing.encode(_nvrtc(*found))


def nvrtc_release() -> str:
    """Returns the version that NVRTC states, ``13.5``, for people to read. It is not part of a key."""
    from cuda.bindings import nvrtc as bindings

    status, major, minor = bindings.nvrtcVersion()
    _check(status, bindings.nvrtcResult.NVRTC_SUCCESS)
    return f"{major}.{minor}"


@functools.lru_cache(maxsize=1)
def nvvm() -> bytes:
    """Returns the version of libNVVM."""
    return _known("NVVM", "install nvidia-nvvm", _nvvm)


@functools.lru_cache(maxsize=1)
def linker() -> bytes:
    """Returns the version of the linker that cuda.core picks for PTX: nvJitLink, else the driver."""
    return _known("the linker", "install nvidia-nvjitlink, or a driver", _linker)


def libdevice() -> bytes:
    """Returns a digest of the bitcode library that cuda.core links for ``use_libdevice``, found as cuda.core finds it.

    Looked at again at each call: unlike the compilers, it is a file that each compilation reads.
    """
    return _known("libdevice", "install nvidia-nvvm", _libdevice)


@functools.lru_cache(maxsize=1)
def compilers_of_numba() -> str:
    """Returns a digest of the builds of all that numba-cuda compiles with. Raises :class:`UncacheableError`."""
    return hashing.digest(b"".join([nvrtc(), _nvvm_by_file(), linker(), libdevice()])).hex()


def in_words(version: bytes) -> str:
    """Returns a version that was looked up here in words, ``NVRTC 13.5 build 3f2a9c41``; empty for any other."""
    return _words.get(version, "")


_words: dict[bytes, str] = {}


def _in_words(found: list[object]) -> str:
    name = found[0]
    numbers = ".".join(str(item) for item in found if isinstance(item, int))
    more = "".join(f" {item}" for item in found[1:] if isinstance(item, str))
    builds = b"".join(item for item in found if isinstance(item, bytes))
    return f"{name} {numbers}{more}" + (f" build {hashing.digest(builds).hex()[:8]}" if builds else "")


def _known(compiler: str, remedy: str, find: Callable[[], list[object]]) -> bytes:
    try:
        found = find()
        encoded = hashing.encode(found)
        _words[encoded] = _in_words(found)
        return encoded
    except Exception as error:
        raise UncacheableError(
            f"cannot make a cache key: the version of {compiler} cannot be found ({type(error).__name__}: {error}). "
            f"To have it, {remedy}"
        ) from error


def _loaded_nvrtc() -> list[object]:
    from cuda.bindings import nvrtc as bindings

    status, major, minor = bindings.nvrtcVersion()
    _check(status, bindings.nvrtcResult.NVRTC_SUCCESS)
    library = _library_path("nvrtc")
    if library and _was_replaced(library):
        raise OSError(f"{library} was replaced after it was loaded")
    return _nvrtc(library, major, minor)


def _was_replaced(library: str) -> bool:
    with open("/proc/self/maps") as maps:
        return any(line.endswith(f"{library} (deleted)\n") for line in maps)


def _nvrtc(library: str | None, major: int, minor: int) -> list[object]:
    builtins = _builtins(library, major, minor) if library else []
    return ["NVRTC", major, minor, _build(library), *[fingerprint(path) for path in builtins]]


def _find_file() -> tuple[str, int, int] | None:
    """Returns the NVRTC that would be loaded, and its version; ``None`` where to know them takes loading it."""
    path = _find_path("nvrtc")
    return _versioned(path) if path else None


def _versioned(path: str) -> tuple[str, int, int] | None:
    library = _LIBRARY.match(os.path.basename(path))
    if library is None:
        return None
    path = os.path.realpath(path)
    try:
        names = os.listdir(os.path.dirname(path))
        versions = {match.groups() for match in map(_BUILTINS.fullmatch, names) if match and match[1] == library[1]}
        if len(versions) != 1:
            return None
        major, minor = map(int, versions.pop())
        return path, major, minor
    except OSError:
        return None


def _find_path(name: str) -> str | None:
    """Returns the path of the library that is loaded, or would be; ``None`` where nobody knows."""
    try:
        from cuda.pathfinder._dynamic_libs.lib_descriptor import LIB_DESCRIPTORS
        from cuda.pathfinder._dynamic_libs.platform_loader import LOADER
        from cuda.pathfinder._dynamic_libs.search_steps import EARLY_FIND_STEPS, SearchContext, run_find_steps

        library = LIB_DESCRIPTORS[name]
        found: Any = LOADER.check_if_already_loaded_from_elsewhere(library)
        found = found or run_find_steps(SearchContext(library), EARLY_FIND_STEPS)
        return None if found is None else os.fspath(found.abs_path)
    except (ImportError, AttributeError, LookupError, TypeError, OSError):
        return None  # another pathfinder than those that were tried


def _nvvm_by_file() -> bytes:
    """Returns the build of the NVVM that would be loaded: a process that only finds kernels does not load it."""
    path = _find_path("nvvm")
    return hashing.encode(["NVVM", _build(os.path.realpath(path))]) if path else nvvm()


def _nvvm() -> list[object]:
    from cuda.bindings import nvvm as bindings

    return ["NVVM", *bindings.version(), *bindings.ir_version(), _build(_library_path("nvvm"))]


def _libdevice() -> list[object]:
    from cuda.pathfinder import find_bitcode_lib

    return ["libdevice", file_digest(find_bitcode_lib("device"))]


def file_digest(path: str) -> bytes:
    """Returns a digest of a file, which is read again when it has changed. Raises :class:`OSError`."""
    status = os.stat(path)
    return _content(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@functools.lru_cache(maxsize=4)
def _content(path: str, *identity: int) -> bytes:
    """Returns a digest of a file that is ``identity``, 0.5 MB of it in a millisecond."""
    with open(path, "rb") as file:
        return hashing.digest(file.read())


def _linker() -> list[object]:
    from cuda.core import Linker, __version__
    from cuda.core.typing import CompilerBackendType

    # cuda.core chooses the options that reach the linker, and the key sees them before that choice.
    options_by = f"cuda.core {__version__}"
    if Linker.which_backend() == CompilerBackendType.NVJITLINK:
        from cuda.bindings import nvjitlink

        return ["nvJitLink", *nvjitlink.version(), _build(_library_path("nvJitLink")), options_by]
    from cuda.bindings import driver

    status, version = driver.cuDriverGetVersion()
    _check(status, driver.CUresult.CUDA_SUCCESS)
    return ["driver", version, _build(_library_path("cuda")), options_by]


def _check(status: Any, success: Any) -> None:
    if status != success:
        raise OSError(f"the library answered {status}")


def _library_path(name: str) -> str | None:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    path: str | None = load_nvidia_dynamic_lib(name).abs_path
    return os.path.realpath(path) if path else None


def _builtins(library: str, major: int, minor: int) -> list[str]:
    folder = glob.escape(os.path.dirname(library))
    found = glob.glob(f"{folder}/*nvrtc-builtins*{major}.{minor}*")
    return sorted({os.path.realpath(path) for path in found})


def _build(library: str | None) -> bytes | None:
    return fingerprint(library) if library else None


def fingerprint(path: str) -> bytes:
    """Returns a digest for the build of a library, of its size and both its ends (all 140 MB would cost 0.1 s)."""
    with open(path, "rb") as library:
        size = os.fstat(library.fileno()).st_size
        head = library.read(_END_BYTES)
        library.seek(max(_END_BYTES, size - _END_BYTES))
        return hashing.digest(hashing.encode([size, head, library.read()]))
