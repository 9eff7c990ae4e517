# SPDX-License-Identifier: Apache-2.0
"""Keys of what is linked: object codes, by nvJitLink; PTX as a program, also by the driver where nvJitLink is missing.

Keeps the contract's rule for code_type "ptx" and for ``lockcache.cuda.Linker``.

Of a program of PTX: cuda.core has no public rendering of ProgramOptions for a linker, so this
module takes the fields themselves, in the meaning that the linker gives them. Not in the key, tried field by field: the
options of C++ (cuda.core does not pass them on, ``device_code_optimize`` among them), name expressions, and the working
directory (line information names the files that the PTX names). For the same reason headers and PCH are not external
content here, and ``time`` no side effect: the linker only writes it to its log.

Of a linker: the options are what cuda.core hands to nvJitLink, byte for byte. Not in the key, tried with nvJitLink 13.5
(docs/key-options.md): the names and symbol mappings of the objects and the name of the result, which cuda.core keeps to
itself; the working directory and the paths of objects, because nvJitLink opens no file and asks for no directory
(watched with strace). Linking with ``split_compile_extended`` gives other bytes each time, of which any will do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lockcache.explain import Stated, is_remembered, remember
from lockcache.keys import environment, hashing, versions
from lockcache.keys.options import as_strings, unknown_fields, unreadable_fields
from lockcache.keys.part_names import name_parts
from lockcache.keys.refusals import extra_sources, ptxas_files, refuse, unreadable, unusable
from lockcache.keys.request import Request

# Off and unset are the same.
_FLAGS = ("debug", "lineinfo", "link_time_optimization", "no_cache")
# Off and unset differ: unset leaves the choice to the linker.
_SWITCHES = ("ftz", "prec_div", "prec_sqrt", "fma")
_VALUES = ("max_register_count", "split_compile")

#: The fields of ``cuda.core.ProgramOptions`` that reach the linker.
FIELDS = frozenset({"name", "arch", "ptxas_options", "time", "extra_sources", *_FLAGS, *_SWITCHES, *_VALUES})


def describe(request: Request) -> dict[str, object]:
    """Returns all that decides the output of the linker, by the names of the key's parts."""
    options = request.options
    external = ptxas_files(as_strings(options.ptxas_options)) if request.extra_digest is None else []
    refuse(extra_sources(options, "ptx") + unusable(options) + external)
    return {
        "code": request.code,
        "options": _linker_options(options),
        "target": request.target_type,
        "name": options.name,
        "newer options": unknown_fields(options),
        "compiler": versions.linker(),
        "variables": environment.variables(request.target_type),
        "extra digest": request.extra_digest,
    }


def _linker_options(options: Any) -> dict[str, object]:
    """Returns the options by their names; a group of them is one value of the key."""
    switches = {name: getattr(options, name) for name in _SWITCHES}
    return {
        "arch": options.arch,
        "flags": {name: bool(getattr(options, name)) for name in _FLAGS},
        "switches": {name: None if value is None else bool(value) for name, value in switches.items()},
        "values": {name: _number(options, name) for name in _VALUES},
        "ptxas_options": as_strings(options.ptxas_options),
        "time": options.time is not None,
    }


def _number(options: Any, name: str) -> object:
    value = getattr(options, name)
    if value is not None and not isinstance(value, (int, float, str)):
        raise TypeError(f"options.{name} must be an int; got {type(value).__name__} {value!r:.80}")
    return value


#: The fields of ``cuda.core.LinkerOptions`` that are among the options of nvJitLink. All are in the key as rendered.
RENDERED: Final = frozenset(
    """
    arch max_register_count time verbose link_time_optimization ptx optimization_level debug lineinfo ftz prec_div
    prec_sqrt fma kernels_used variables_used optimize_unused_variables ptxas_options split_compile
    split_compile_extended no_cache
    """.split()  # noqa: SIM905 (a table to be read)
)
#: The fields that nvJitLink does not see: the name of the result, and an option that cuda.core ignores.
UNSEEN: Final = frozenset({"name", "numba_debug"})

_KNOWN: Final = RENDERED | UNSEEN
_DEFAULT_NAME: Final = "<default linker>"  # cuda.core's, for a linker without a name
_PTXAS: Final = b"-Xptxas="


def link_key(objects: Iterable[tuple[str, bytes]], *, options: Any, rendered: list[bytes], target_type: str) -> bytes:
    """Returns the cache key of linking these objects, 32 bytes: equal keys promise interchangeable output.

    ``objects`` are types and codes in the order of linking, ``rendered`` is what ``options.as_bytes()`` gave. Raises
    :class:`UncacheableError` for a ptxas option that reads a file, a newer option that no key can hold, and where the
    version of the linker cannot be found.
    """
    refuse(unreadable(unreadable_fields(options, _KNOWN)) + ptxas_files(_ptxas(rendered), takes_digest=False))
    description: dict[str, object] = {
        "code type": "link",
        "objects": [[kind, hashing.digest(code)] for kind, code in objects],
        "options": rendered,
        "target": target_type,
        "newer options": unknown_fields(options, _KNOWN),
        "compiler": versions.linker(),
        "variables": environment.variables(target_type),
    }
    key = hashing.key([*description.values()])
    if not is_remembered(key):
        label = "" if options.name == _DEFAULT_NAME else str(options.name)
        remember(key, Stated(lambda: name_parts(description), lambda: label))
    return key


def _ptxas(rendered: list[bytes]) -> list[str]:
    return [each[len(_PTXAS) :].decode(errors="replace") for each in rendered if each.startswith(_PTXAS)]
