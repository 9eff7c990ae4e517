# SPDX-License-Identifier: Apache-2.0
"""The arguments of a key: what is wrong is an error that names it, also where no compiler is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockcache.errors import UncacheableError
from tests.unit.keys.material import key, make, options


def test_importing_keys_loads_nothing_of_cuda() -> None:
    script = "import sys, lockcache.keys; sys.exit(any(name.split('.')[0] == 'cuda' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"code_type": 5}, "code_type.*int"),
        ({"code_type": None}, "code_type.*NoneType"),
        ({"target_type": b"cubin"}, "target_type.*bytes"),
        ({"options": None}, "ProgramOptions.*NoneType"),
        ({"options": {"arch": "sm_90"}}, "ProgramOptions.*dict"),
    ],
)
def test_a_wrong_type_is_named_even_where_cuda_core_is_absent(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(**{"options": None, **changes})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"code_type": "cuda"}, r"c\+\+, ptx, nvvm.*'cuda'"),
        ({"target_type": "exe"}, "ptx, cubin, ltoir.*'exe'"),
        ({"code_type": "ptx", "target_type": "ltoir"}, "'ltoir'.*'ptx'.*cubin, ptx"),
        ({"code_type": "nvvm", "target_type": "cubin"}, "'cubin'.*'nvvm'.*ptx, ltoir"),
    ],
)
def test_an_unknown_type_or_pair_is_refused_with_a_list_of_what_is_accepted(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**{"options": None, **changes})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"code": b"x"}, "code must be a str.*bytes"),
        ({"code": b"x", "code_type": "ptx"}, "code must be a str.*bytes"),
        ({"code": 5, "code_type": "nvvm", "target_type": "ptx"}, "code must be str, bytes or bytearray.*int"),
        ({"name_expressions": "abc"}, "name_expressions.*str 'abc'"),
        ({"name_expressions": b"abc"}, "name_expressions.*bytes"),
        ({"name_expressions": 5}, "name_expressions.*int"),
        ({"name_expressions": None}, "name_expressions.*NoneType"),
        ({"name_expressions": ["f", 5]}, r"name_expressions\[1\] must be a str or bytes, got int 5"),
        ({"name_expressions": (bytearray(b"f"),)}, r"name_expressions\[0\] must be.*bytearray"),
        ({"extra_digest": 5}, "extra_digest.*int 5"),
        ({"extra_digest": "digest"}, "extra_digest.*str 'digest'"),
        ({"extra_digest": [1]}, "extra_digest.*list"),
    ],
)
def test_an_argument_of_the_wrong_type_is_a_type_error_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        key(**changes)


@pytest.mark.parametrize(
    "field, value",
    [
        ("include_path", 5),
        ("include_path", [5]),
        ("include_path", Path("/usr/include")),
        ("include_path", b"/usr/include"),
        ("pre_include", 5),
        ("pre_include", {"a.h"}),
        ("undefine_macro", 5),
        ("ptxas_options", ("-v", 5)),
        ("define_macro", 5),
        ("define_macro", {"A": "1"}),
        ("diag_suppress", {1}),
        ("diag_error", 1.5),
        ("diag_warn", [None]),
    ],
)
@pytest.mark.parametrize("extra_digest", [None, b"headers"])
def test_an_option_that_cuda_core_would_drop_for_its_type_is_a_type_error(
    field: str, value: object, extra_digest: bytes | None
) -> None:
    with pytest.raises(TypeError, match=rf"options\.{field}(\[\d\])? must be"):
        key(options=options(**{field: value}), extra_digest=extra_digest)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"include_path": ["/a", 5]}, r"options\.include_path\[1\] must be a str; got int 5"),
        ({"diag_warn": (1, None)}, r"options\.diag_warn\[1\] must be an int; got NoneType None"),
        ({"define_macro": ["A", 5]}, r"options\.define_macro\[1\] must be a str or a \(name, value\) tuple.*int 5"),
        ({"define_macro": ["A", ("B", 5)]}, r"options\.define_macro\[1\]\[1\] must be a str; got int 5"),
        ({"define_macro": ("A", 5)}, r"options\.define_macro\[1\] must be a str; got int 5"),
        ({"define_macro": ("A", "B", "C")}, r"options\.define_macro must be .*tuple"),
    ],
)
def test_an_item_of_an_option_is_named_by_its_place(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        key(options=options(**fields))


def test_an_option_of_the_other_paths_is_named_too() -> None:
    with pytest.raises(TypeError, match=r"options\.max_register_count must be an int; got set \{1\}"):
        key(code_type="ptx", options=options(max_register_count={1}))
    # cuda.core looks at them when they are given, not when they are set.
    given = options()
    for sources, named in (
        ([("a", "b"), 5], r"\[1\] must be a \(name, source\) pair.*got 5"),
        ([("a", 5)], r"\[0\]\[1\], the source of 'a', must be.*int 5"),
        ({"a": "b"}, " must be a list or tuple .*got dict"),
    ):
        given.extra_sources = sources
        with pytest.raises(TypeError, match=r"options\.extra_sources" + named):
            key(code_type="nvvm", target_type="ptx", options=given)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"name_expressions": ["f", "\udc80"]}, r"name_expressions\[1\] cannot be written as UTF-8"),
        ({"fields": {"name": "\udc80"}}, r"options\.name cannot be written as UTF-8"),
        ({"fields": {"define_macro": ["A", "\udc80"]}}, r"options\.define_macro cannot be written as UTF-8"),
        ({"fields": {"name": "\udc80"}, "code_type": "ptx"}, r"options\.name cannot be written as UTF-8"),
    ],
)
def test_text_that_is_not_unicode_is_named(changes: dict[str, Any], named: str) -> None:
    given = options()
    for field, value in changes.pop("fields", {}).items():
        setattr(given, field, value)  # as options it would be cuda.core's error
    with pytest.raises(ValueError, match=named):
        key(options=given, **changes)


def test_options_without_an_arch_have_no_key() -> None:
    unset = options()
    unset.arch = None
    with pytest.raises(UncacheableError, match="arch='sm_90'"):
        key(options=unset)


def test_code_that_is_not_unicode_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="code cannot be written as UTF-8"):
        key(code="\udc80")


@pytest.mark.cuda
@pytest.mark.parametrize("field, wrong", [("arch", 90), ("name", b"kernel.cu")])
def test_an_option_of_another_type_is_refused_by_its_name(field: str, wrong: object) -> None:
    given = options()
    setattr(given, field, wrong)
    with pytest.raises(TypeError, match=f"options.{field} must be a str"):
        make(options=given)
