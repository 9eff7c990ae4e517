# SPDX-License-Identifier: Apache-2.0
"""Refusals: what cannot be cached is refused with one error that names all of it."""

from __future__ import annotations

from typing import Any

import pytest

from lockcache.errors import LockcacheError, UncacheableError
from tests.unit.keys.material import key, options


@pytest.mark.parametrize(
    "field, value",
    [
        ("create_pch", "x.pch"),
        ("create_pch", False),
        ("time", "x.csv"),
        ("time", ""),
        ("time", False),
        ("fdevice_time_trace", "trace.json"),
    ],
)
def test_an_option_with_a_side_effect_is_refused_even_with_an_extra_digest(field: str, value: object) -> None:
    for extra_digest in (None, b"everything"):
        with pytest.raises(UncacheableError, match=rf"options\.{field}.*hit does not compile"):
            key(options=options(**{field: value}), extra_digest=extra_digest)


@pytest.mark.parametrize(
    "fields",
    [
        {"include_path": "/usr/include"},
        {"include_path": ["/a", "/b"]},
        {"include_path": ""},
        {"pre_include": "x.h"},
        {"pch": True},
        {"use_pch": "x.pch"},
        {"pch_dir": "/tmp"},
        {"name": "kernels/k.cu"},
        {"name": "/abs/k.cu"},
        {"name": "kernels\\k.cu"},
        {"name": "k/", "no_source_include": True},
        {"ptxas_options": "--options-file=o"},
        {"ptxas_options": ["-v", "-optf", "o"]},
        {"ptxas_options": "--apply-controls=o"},
        {"define_macro": "T=__TIME__"},
        {"define_macro": ("H", '__has_include("x.h")')},
    ],
    ids=str,
)
def test_an_option_that_reads_files_is_refused_without_an_extra_digest(fields: dict[str, Any]) -> None:
    with pytest.raises(UncacheableError, match="extra_digest"):
        key(options=options(**fields))


def test_a_refusal_names_every_option_that_it_is_for_and_what_to_do_about_each() -> None:
    given = options(
        create_pch="x",
        time=False,
        include_path=["/a"],
        pch=True,
        name="a/b.cu",
        ptxas_options=["-optf", "-v", "--apply-controls=o"],
        define_macro="T=__TIME__",
        extra_sources=[("a", "b")],
    )
    given.arch = None
    with pytest.raises(UncacheableError) as caught:
        key(options=given, code='#include "x.h"\n#include </usr/y.h>\nchar when[] = __DATE__;')
    said = str(caught.value)
    fields = (
        "create_pch",
        "time",
        "include_path",
        "pch",
        "name",
        "ptxas_options",
        "define_macro",
        "extra_sources",
        "arch",
    )
    found = [f"options.{field}" for field in fields if field != "pch"]
    found += ["options.pch True", "'-optf'", "'--apply-controls=o'", "__DATE__ in code", "x.h", "/usr/y.h"]
    assert [each for each in found if each not in said] == []
    unset = "Unset options.create_pch and options.time and options.extra_sources, or compile without a cache."
    assert unset in said
    assert said.count("ass extra_digest") == 1
    assert "or use a name without one, or set no_source_include" in said
    # With a digest, what is only read is none of it.
    with pytest.raises(UncacheableError, match=r"^(?!.*include_path).*create_pch.*time.*extra_sources.*arch"):
        key(options=given, extra_digest=b"all that it reads")


@pytest.mark.parametrize("code_type", ["ptx", "nvvm"])
def test_a_refusal_of_the_other_paths_names_every_option_too(code_type: str) -> None:
    given = options(extra_sources=[("a", "b")], ptxas_options=["-optf", "--options-file=o"])
    given.arch = None
    named = {"ptx": ("extra_sources", "arch", "-optf", "--options-file"), "nvvm": ("arch",)}[code_type]
    with pytest.raises(UncacheableError) as caught:
        key(code_type=code_type, target_type="ptx", options=given)
    assert [each for each in named if each not in str(caught.value)] == []


@pytest.mark.parametrize("code_type", ["c++", "ptx"])
def test_extra_sources_are_refused_where_program_refuses_them(code_type: str) -> None:
    with pytest.raises(UncacheableError, match="extra_sources"):
        key(code_type=code_type, options=options(extra_sources=[("a", "b")]))


@pytest.mark.parametrize("sources", ["ab", [5], [("a",)], [(5, "a")], [("a", 5)]], ids=str)
def test_extra_sources_of_the_wrong_shape_are_a_type_error(sources: object) -> None:
    changed = options()
    changed.extra_sources = sources  # cuda.core looks at it only when it is given to the constructor
    with pytest.raises(TypeError, match="extra_sources"):
        key(code_type="nvvm", target_type="ptx", options=changed)


def test_a_refusal_is_a_value_error_and_a_lockcache_error() -> None:
    assert issubclass(UncacheableError, ValueError)
    assert issubclass(UncacheableError, LockcacheError)


@pytest.mark.parametrize("code", ['#include "x.h"', "#include </usr/x.h>", "char c[] = __DATE__;", "#include HEADER"])
def test_code_that_reads_something_else_is_refused_without_an_extra_digest(code: str) -> None:
    with pytest.raises(UncacheableError, match="extra_digest"):
        key(code=code)
