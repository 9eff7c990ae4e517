# SPDX-License-Identifier: Apache-2.0
"""The fields of cuda.core.ProgramOptions, and what else a compilation reads: what stands for each in a key.

Keeps three rules. A digest of one kind of input vouches for no other: :data:`INPUTS` is the table that the compiler
paths (cxx.py, linking.py, nvvm.py) go by, :data:`VALUES` names the options that read nothing, and a field of
``cuda.core.ProgramOptions`` that is in neither makes tests/cuda/test_keys_options.py fail. Until someone has decided
about it, such a field goes into the key as it stands, so that it can cause a miss at worst. An option that cuda.core
would drop without a word because of its type is a TypeError.
"""

from __future__ import annotations

import dataclasses
import functools
from enum import Enum
from typing import Any, Final, NamedTuple

from lockcache.keys import hashing


class By(Enum):
    """What stands for an input in the key."""

    #: The digest of all files that the source can reach (:func:`lockcache.headers.examine`).
    HEADERS = "headers"
    #: A digest of the file itself.
    CONTENT = "content"
    #: The build of the compiler, which brings the files along.
    BUILD = "build"
    #: The value, as the compiler sees it.
    VALUE = "value"
    #: Nothing: no key, unless the caller vouches for it with an ``extra_digest``.
    REFUSED = "refused"
    #: Nothing, ever: a hit would leave out what the compilation does in addition to its output.
    SIDE_EFFECT = "side effect"


class Input(NamedTuple):
    """One input of one kind of program."""

    code_type: str
    #: The option; in words where it is none.
    name: str
    by: By
    why: str
    is_option: bool = True


_PCH: Final = "it reads a precompiled header, and nobody digests those"
_PTXAS: Final = "ptxas reads a file for it"

INPUTS: Final = (
    Input("c++", "include_path", By.HEADERS, "the compiler reads files for it"),
    Input("c++", "pre_include", By.HEADERS, "the compiler reads files for it"),
    Input("c++", "directory of name", By.HEADERS, "NVRTC looks for #include files in its directory part", False),
    Input("c++", "#include and __has_include", By.HEADERS, "NVRTC may open a file for it", False),
    Input("c++", "use_bundled_headers", By.BUILD, "NVRTC unpacks its own headers; their files are digested as well"),
    Input("c++", "ptxas_options that name a file", By.REFUSED, _PTXAS, False),
    Input("c++", "pch", By.REFUSED, _PCH),
    Input("c++", "use_pch", By.REFUSED, _PCH),
    Input("c++", "pch_dir", By.REFUSED, _PCH),
    Input("c++", "__DATE__, __TIME__ and __TIMESTAMP__", By.REFUSED, "it takes the time of the compilation in", False),
    Input("c++", "create_pch", By.SIDE_EFFECT, "it writes a precompiled header"),
    Input("c++", "time", By.SIDE_EFFECT, "it writes a report"),
    Input("c++", "fdevice_time_trace", By.SIDE_EFFECT, "it writes a report"),
    Input("c++", "working directory", By.VALUE, "debug and line information and LTO-IR name it", False),
    Input("c++", "directory of temporary files", By.VALUE, "debug and line information without a name name it", False),
    Input("c++", "variables", By.VALUE, "NVRTC reads some", False),
    Input("ptx", "ptxas_options that name a file", By.REFUSED, _PTXAS, False),
    Input("ptx", "variables", By.VALUE, "nvJitLink reads some", False),
    Input("nvvm", "use_libdevice", By.CONTENT, "libNVVM links the toolkit's libdevice"),
    Input("nvvm", "extra_sources", By.VALUE, "they are linked, in order"),
    Input("nvvm", "variables", By.VALUE, "libNVVM reads some", False),
)

#: The options of cuda.core 1.2 that read nothing, each decided about in cxx.py, linking.py and nvvm.py.
VALUES: Final = frozenset(
    """
    name arch relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize ptxas_options
    max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization link_time_optimization
    gen_opt_lto define_macro undefine_macro no_source_include std builtin_move_forward builtin_initializer_list
    disable_warnings restrict device_as_default_execution_space device_int128 optimization_info no_display_error_number
    diag_error diag_suppress diag_warn brief_diagnostics split_compile fdevice_syntax_only minimal no_cache
    device_float128 frandom_seed ofast_compile pch_verbose pch_messages instantiate_templates_in_pch numba_debug
    """.split()  # noqa: SIM905 (a table to be read, not a list of 45 lines)
)

#: Every option that is decided about here.
KNOWN: Final[frozenset[str]] = VALUES | {each.name for each in INPUTS if each.is_option}


@functools.cache
def options_by(code_type: str, by: By) -> tuple[Input, ...]:
    """Returns the options of one kind of program that this stands for."""
    return tuple(each for each in INPUTS if each.code_type == code_type and each.by is by and each.is_option)


# cuda.core 1.2.2 renders none of these when they are neither a str nor a list nor a tuple (a set, a Path, 5), and
# renders whatever the list holds: both compile something else than what the caller meant.
_STRINGS = ("include_path", "pre_include", "undefine_macro", "ptxas_options")
_NUMBERS = ("diag_error", "diag_suppress", "diag_warn")


def check_types(options: Any) -> None:
    """Raises TypeError for a list-like option of a type that cuda.core drops or garbles."""
    for field in _STRINGS:
        value = getattr(options, field)
        if value is not None:
            _check_list(field, value, (str,), "a str, or a list or tuple of str")
    for field in _NUMBERS:
        value = getattr(options, field)
        if value is not None:
            _check_list(field, value, (int, str), "an int, or a list or tuple of int")
    macro = options.define_macro
    if macro is not None:
        _check_macros(macro)


def _check_list(field: str, value: object, accepted: tuple[type, ...], description: str) -> None:
    if not isinstance(value, (list, tuple)):
        if not isinstance(value, accepted):
            raise _wrong(f"options.{field}", description, value)
        return
    for index, item in enumerate(value):
        if not isinstance(item, accepted):
            raise _wrong(f"options.{field}[{index}]", description.partition(",")[0], item)


def _check_macros(value: object) -> None:
    if isinstance(value, list):
        for index, macro in enumerate(value):
            _check_macro(f"options.define_macro[{index}]", macro, "a str or a (name, value) tuple of str")
    else:
        _check_macro("options.define_macro", value, "a str, a (name, value) tuple of str, or a list of these")


def _check_macro(argument: str, macro: object, description: str) -> None:
    if isinstance(macro, str):
        return
    if not isinstance(macro, tuple) or len(macro) != 2:
        raise _wrong(argument, description, macro)
    for index, part in enumerate(macro):
        if not isinstance(part, str):
            raise _wrong(f"{argument}[{index}]", "a str", part)


def _wrong(argument: str, description: str, value: object) -> TypeError:
    return TypeError(f"{argument} must be {description}; got {type(value).__name__} {value!r:.80}")


def as_strings(value: str | list[str] | tuple[str, ...] | None) -> list[str]:
    """Returns a checked list-like option as a list; one str is a list of one."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def unknown_fields(options: Any, known: frozenset[str] = KNOWN) -> list[object]:
    """Returns the names and values of the fields that are set and not among ``known``, those of this version."""
    options_type: Any = type(options)
    values = [[name, getattr(options, name)] for name in _unknown_names(options_type, known)]
    return [named for named in values if named[1] is not None]


def unreadable_fields(options: Any, known: frozenset[str] = KNOWN) -> list[tuple[str, str]]:
    """Returns the fields of :func:`unknown_fields` whose values no key can hold, and why."""
    found = []
    options_type: Any = type(options)
    for name in _unknown_names(options_type, known):
        try:
            hashing.encode(getattr(options, name))
        except TypeError as error:
            found.append((name, str(error)))
    return found


def unwritable_field(options: Any) -> str:
    """Returns the name of the first field with text that is not UTF-8."""
    for field in dataclasses.fields(options):
        try:
            hashing.encode(getattr(options, field.name))
        except UnicodeEncodeError:
            return f"options.{field.name}"
        except TypeError:
            continue
    return "options"


@functools.lru_cache(maxsize=8)
def _unknown_names(options_type: Any, known: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted({field.name for field in dataclasses.fields(options_type)} - known))
