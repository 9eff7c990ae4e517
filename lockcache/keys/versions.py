"""Compiler versions: version and build of NVRTC, NVVM, nvJitLink, and of the driver where the driver links.

Keeps the rule that an upgraded compiler never serves what the old one made. The version that a library reports is
major.minor only (13.5 for every 13.5.x), so a fingerprint of the library file goes with it. The file's content decides,
not its path or time: the same wheel in two containers is the same compiler. Looked up once per process; a library is
never loaded twice.

Without a version there is no key: compiling would fail as well, and a key without it could return code of another
compiler. A failure is not remembered, the next call tries again.
"""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Callable
from typing import Any

from lockcache.errors import UncacheableError
from lockcache.keys import hashing

#: Bytes taken from each end of a library. Sized to reach the linker's build ID, the content hash that is its true name:
#: at 0x1c8 or 0x270 in nvJitLink, NVVM and the builtins 13.5, and 40 bytes before the end in NVRTC 13.5.
_END_BYTES = 64 * 1024


@functools.lru_cache(maxsize=1)
def nvrtc() -> bytes:
    """Returns the version of NVRTC, and of the library next to it with its device functions and bundled headers."""
    return _known("NVRTC", "install nvidia-cuda-nvrtc", _nvrtc)


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


def _nvrtc() -> list[object]:
    from cuda.bindings import nvrtc as bindings

    status, major, minor = bindings.nvrtcVersion()
    _check(status, bindings.nvrtcResult.NVRTC_SUCCESS)
    library = _library_path("nvrtc")
    builtins = _builtins(library, major, minor) if library else []
    return ["NVRTC", major, minor, _build(library), *[fingerprint(path) for path in builtins]]


def _nvvm() -> list[object]:
    from cuda.bindings import nvvm as bindings

    return ["NVVM", *bindings.version(), *bindings.ir_version(), _build(_library_path("nvvm"))]


def _libdevice() -> list[object]:
    from cuda.pathfinder import find_bitcode_lib

    path = find_bitcode_lib("device")
    status = os.stat(path)
    return ["libdevice", _content(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)]


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
