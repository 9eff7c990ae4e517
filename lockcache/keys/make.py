# SPDX-License-Identifier: Apache-2.0
"""make_program_cache_key: checks what it was given, lets one compiler path describe it, hashes the description.

Keeps the contract's rule that everything that can change the output changes the key. Each path (cxx.py, linking.py,
nvvm.py) decides what that is for its compiler; this module decides only the order of the steps. What a key was made of
is remembered in this process for a while, for the cache that something is stored in under it (parts.py). It does not
promise the keys of cuda.core's function of the same name: the two never share entries, because cuda.core's key leaves
out some of what changes the output.

A program is called by the name that its options give it, else by its name expressions, else by the kernels that its
source defines, found by their usual spelling and not by parsing: a name that is missed, or is of a kernel in a comment,
is only words. No part of any key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xxhash import xxh3_64_digest

from lockcache.artifact import PTX_ENTRY
from lockcache.explain import Stated, is_remembered, remember
from lockcache.headers import may_include
from lockcache.keys import cxx, hashing, linking, nvvm, versions
from lockcache.keys.options import unwritable_field
from lockcache.keys.part_names import name_parts
from lockcache.keys.paths import Headers, Reach, reach_of_paths, spelled_paths, why_paths, without_paths
from lockcache.keys.request import Request, coerce_request

if TYPE_CHECKING:
    from cuda.core import ProgramOptions

_DESCRIBE: dict[str, Callable[[Request], dict[str, object]]] = {
    "c++": cxx.describe,
    "ptx": linking.describe,
    "nvvm": nvvm.describe,
}


def make_program_cache_key(
    *,
    code: str | bytes | bytearray,
    code_type: str,
    options: ProgramOptions,
    target_type: str,
    name_expressions: Iterable[str | bytes] = (),
    extra_digest: bytes | bytearray | memoryview | None = None,
) -> bytes:
    """Returns the cache key of one compilation, 32 bytes: equal keys promise interchangeable output.

    The same arguments give the same key in every process that has the same compiler, whatever its hash seed.

    Args:
        code: The source: ``str``; for NVVM also ``bytes`` or ``bytearray`` (the same text gives the same key).
        code_type: With ``target_type`` as ``cuda.core.Program`` takes them, in any case: ``"c++"`` to ptx, cubin or
            ltoir; ``"ptx"`` to cubin or ptx; ``"nvvm"`` to ptx or ltoir.
        options: A ``cuda.core.ProgramOptions``, with its ``arch`` set.
        target_type: See ``code_type``.
        name_expressions: Any iterable; its order is of no account. ``"f"`` and ``b"f"`` differ: they are different
            names to look up in the compiled object. Only C++ has them; the other two ignore them, as the compilers do.
        extra_digest: A digest of what the key cannot see, such as header files
            (:func:`lockcache.headers.fingerprint`). With it the caller vouches for all else that the compilation reads.

    What goes in: the code, the options as the compiler sees them, ``options.name``, the target, the name expressions,
    the version and build of NVRTC, NVVM or nvJitLink (of the driver where the driver links), the content of libdevice
    where NVVM links it, the environment variables that these compilers read, the working directory where it reaches the
    output (C++ with debug or line information, LTO-IR), the directory of temporary files where cuda.core writes the
    source there (debug or line information, and no name), ``extra_digest``, and the version of this scheme. Not where
    NVRTC unpacks its own headers (``use_bundled_headers``), unless the output can name a file of them.

    Raises:
        UncacheableError: A hit would leave out a side effect (``create_pch``, ``time``, ``fdevice_time_trace``); or,
            without ``extra_digest``, the compilation reads what the key cannot see (``include_path``, ``pre_include``,
            ``pch``, ``use_pch``, ``pch_dir``, a name with a directory part, an ``#include`` of a file, the clock, a
            ptxas options file); or no compiler version can be had; or one of the compilers' variables has changed since
            the process began, which some read once. The message names all of them, and says what to do.
        TypeError: An argument, or an option that cuda.core would ignore without a word, has the wrong type. The message
            names it, and the item: ``options.include_path[1]``.
        ValueError: An unknown code or target type, or a pair that ``Program.compile`` does not support. What cuda.core
            raises for options that a compiler does not have (NVVM: ``CUDAError``) comes through as it is.
    """
    request = coerce_request(code, code_type, options, target_type, name_expressions, extra_digest)
    if request.code_type == "c++":
        versions.load_nvrtc()  # the caller compiles, with the one that is loaded by then
    return _keys(request).key


class ProgramKeys(NamedTuple):
    """The keys of one compilation."""

    #: Without the paths of headers wherever the output cannot name one, or says so itself.
    key: bytes
    #: The paths that the output may hold; it is stored under :attr:`key` only if it holds none of them.
    printed: Sequence[bytes] = ()
    #: Returns the key with these paths.
    with_paths: Callable[[], bytes] | None = None


def program_keys(
    *,
    code: object,
    code_type: object,
    options: Any,
    target_type: object,
    name_expressions: object = (),
    headers: Headers | None = None,
) -> ProgramKeys:
    """Returns the keys of a compilation whose headers were examined; raises as :func:`make_program_cache_key` does.

    Unlike an ``extra_digest``, ``headers`` vouches for headers only.
    """
    return _keys(coerce_request(code, code_type, options, target_type, name_expressions, None, headers))


def _keys(request: Request) -> ProgramKeys:
    try:
        description = _DESCRIBE[request.code_type](request)
        if request.code_type != "c++" or request.extra_digest is not None:
            return ProgramKeys(_key(request, description))
        return _keys_by_paths(request, description)
    except UnicodeEncodeError as error:
        field = unwritable_field(request.options)
        raise ValueError(f"{field} cannot be written as UTF-8, which the compilers read: {error}") from error


def _keys_by_paths(request: Request, description: dict[str, Any]) -> ProgramKeys:
    rendered = description["options"]
    spelled = spelled_paths(rendered)
    reach = reach_of_paths(request.options, request.target_type, request.headers) if spelled else Reach.ANY
    is_unexamined = request.headers is None and may_include(request.code, request.options.define_macro)
    if reach is Reach.ANY or is_unexamined:
        return ProgramKeys(_key(request, description))
    plain = {**description, "options": without_paths(rendered)}
    if reach is Reach.PRINTED:  # with the places of headers: of two equal ones, each prints a path of its own
        return ProgramKeys(_key(request, plain), spelled, partial(_key, request, description))
    return ProgramKeys(_key(request, {**plain, "headers": None if request.headers is None else request.headers.digest}))


def _key(request: Request, description: dict[str, Any]) -> bytes:
    key = hashing.key([request.code_type, *map(_material, description.values())])
    if not is_remembered(key):
        _remember(key, request, description)
    return key


def _remember(key: bytes, request: Request, description: dict[str, Any]) -> None:
    # Not the code, which may be large: its hash does.
    code = description["code"] if request.code_type == "c++" else xxh3_64_digest(request.code)
    stated = {**description, "code": code, "code type": request.code_type}
    label, why = label_of(request), _why_paths(request, description)
    remember(key, Stated(lambda: name_parts(stated, why), lambda: label))


def _why_paths(request: Request, description: dict[str, Any]) -> list[str]:
    """Returns what takes paths of headers into the key, in words; nothing where the key has none."""
    if request.code_type != "c++" or not spelled_paths(description["options"]):
        return []
    is_vouched = request.extra_digest is not None
    return why_paths(request.options, request.target_type, request.headers, is_vouched=is_vouched)


def _material(value: Any) -> object:
    """Returns what goes into the key: of named values, the values only."""
    return [*map(_material, value.values())] if type(value) is dict else value


_MOST_NAMES: Final = 3
_DEFAULT: Final = "default_program"  # cuda.core's, for a program without a name
# Bounded: between the words stand a type and a name or two.
_KERNEL: Final = {
    "c++": re.compile(rb"__global__[^;{}(]{1,200}\b(\w{1,80})\s*\("),
    "ptx": PTX_ENTRY,
    "nvvm": re.compile(rb"\*?\s@([\w$.]{1,80}),\s*!\"kernel\"|define ptx_kernel[^@\n]{0,80}@([\w$.]{1,80})"),
}
# Attributes that look like a function, in front of one.
_ATTRIBUTE: Final = re.compile(rb"__(?:launch_bounds|attribute|maxnreg|cluster_dims|block_size)__\s*\([^;{}]{0,100}?\)")


def label_of(request: Request) -> str:
    """Returns a name for people; never the source, of which identifiers are shown."""
    name = request.options.name
    if name and name != _DEFAULT:
        return str(name)
    expressions = request.name_expressions
    if expressions:
        return _listed([each if isinstance(each, str) else each.decode(errors="replace") for each in expressions])
    return kernel_names(request.code, request.code_type) or str(name or "")


def kernel_names(code: bytes, code_type: str) -> str:
    """Returns the names of the first kernels in a source, for people; nothing without one."""
    matches = _KERNEL[code_type].finditer(_ATTRIBUTE.sub(b" ", code))
    return _listed([*dict.fromkeys(match[match.lastindex or 0].decode() for match in matches)])


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
