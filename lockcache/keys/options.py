"""The fields of cuda.core.ProgramOptions: which are known here, which types they take, how a list-like one reads.

Keeps two rules: an option that cuda.core would drop without a word because of its type is a TypeError; and a field that
a later cuda.core adds goes into the key as it stands until someone has decided about it (until then
tests/cuda/test_keys_options.py fails), so that an unknown field can cause a miss at worst.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from lockcache.keys import hashing

#: The fields of cuda.core 1.2, each decided about in cxx.py, ptx.py and nvvm.py.
KNOWN = frozenset(
    # A table to be read, not a list of 59 lines.
    """
    name arch relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize ptxas_options
    max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization link_time_optimization
    gen_opt_lto define_macro undefine_macro include_path use_bundled_headers pre_include no_source_include std
    builtin_move_forward builtin_initializer_list disable_warnings restrict device_as_default_execution_space
    device_int128 optimization_info no_display_error_number diag_error diag_suppress diag_warn brief_diagnostics time
    split_compile fdevice_syntax_only minimal no_cache fdevice_time_trace device_float128 frandom_seed ofast_compile pch
    create_pch use_pch pch_dir pch_verbose pch_messages instantiate_templates_in_pch extra_sources use_libdevice
    numba_debug
    """.split()  # noqa: SIM905
)

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


def unknown_fields(options: Any) -> list[object]:
    """Returns the names and values of the fields that are set and unknown to this version."""
    options_type: Any = type(options)
    values = [[name, getattr(options, name)] for name in _unknown_names(options_type)]
    return [named for named in values if named[1] is not None]


def unreadable_fields(options: Any) -> list[tuple[str, str]]:
    """Returns the fields of :func:`unknown_fields` whose values no key can hold, and why."""
    found = []
    options_type: Any = type(options)
    for name in _unknown_names(options_type):
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
def _unknown_names(options_type: Any) -> tuple[str, ...]:
    return tuple(sorted({field.name for field in dataclasses.fields(options_type)} - KNOWN))
