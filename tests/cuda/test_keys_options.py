# SPDX-License-Identifier: Apache-2.0
"""make_program_cache_key with the real cuda.core: every option and argument, and what each does to the output."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

core = pytest.importorskip("cuda.core")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from lockcache.errors import UncacheableError  # noqa: E402
from lockcache.keys import options  # noqa: E402
from tests.cuda.keys import (  # noqa: E402
    CHANGES,
    COMPILE_SCRIPT,
    CXX,
    EXTERNAL,
    NOT_COMPILED,
    REFUSED,
    SEEN,
    SOURCE,
    UNUSED,
    compile_cxx,
    key,
    make_options,
    run_script,
)

pytestmark = pytest.mark.cuda

# ---- every option ----------------------------------------------------------------------------------------------------


def test_every_field_of_program_options_has_been_decided_about() -> None:
    fields = {field.name for field in dataclasses.fields(core.ProgramOptions)}
    assert fields - set(CXX) == set(), "new in cuda.core: decide in lockcache/keys and in this table"
    assert fields - options.KNOWN == set(), "new in cuda.core: decide in lockcache/keys, then add it to KNOWN"
    assert set(CXX) == options.KNOWN


def test_each_field_that_reads_something_has_one_row_a_compiler_and_no_other_is_among_the_values() -> None:
    rows = [(each.code_type, each.name) for each in options.INPUTS]
    assert len(rows) == len(set(rows))
    assert not options.VALUES & {each.name for each in options.INPUTS if each.is_option}
    assert {name for _, name in rows if name.isidentifier()} - {"variables"} <= set(CXX)


@pytest.mark.parametrize("field", [field for field, (decision, _) in CXX.items() if decision in (CHANGES, SEEN)])
def test_an_option_that_nvrtc_sees_changes_the_key(field: str) -> None:
    value = CXX[field][1]
    for target_type in ("cubin", "ptx", "ltoir"):
        changed = key(options=make_options(**{field: value}), target_type=target_type)
        assert changed != key(target_type=target_type)
        assert changed == key(options=make_options(**{field: value}), target_type=target_type)


@pytest.mark.long
@pytest.mark.parametrize(
    "field", [field for field, (decision, _) in CXX.items() if decision == CHANGES and field not in NOT_COMPILED]
)
def test_an_option_said_to_change_the_output_does(field: str, plain_cubin: bytes) -> None:
    fields = {field: CXX[field][1]}
    if field in ("name", "std"):
        # Only the name that a program gives away, and the language version that it asks for, reach the output.
        code = '__device__ const char *n = __FILE__; extern "C" __global__ void k(long *a) { *a = __cplusplus; }'
        assert compile_cxx("ptx", code, **fields) != compile_cxx("ptx", code)
    else:
        assert compile_cxx("cubin", **fields) != plain_cubin


@pytest.mark.long
def test_restrict_changes_the_output_and_the_key() -> None:
    plain, restricted = (run_script(COMPILE_SCRIPT, "cubin", repr(fields)) for fields in ({}, {"restrict": True}))
    assert plain[0] != restricted[0]
    assert plain[1] != restricted[1]


@pytest.mark.parametrize(
    "field", [field for field, (decision, _) in CXX.items() if decision == SEEN and field not in NOT_COMPILED]
)
def test_an_option_said_to_be_seen_can_be_compiled(field: str) -> None:
    compile_cxx("cubin", **{field: CXX[field][1]})


@pytest.mark.parametrize("field", [field for field, (decision, _) in CXX.items() if decision == UNUSED])
def test_an_option_that_does_not_reach_the_compiler_leaves_the_key_alone(field: str) -> None:
    assert key(options=make_options(**{field: CXX[field][1]})) == key()


@pytest.mark.parametrize("field", [field for field, (decision, _) in CXX.items() if decision in (REFUSED, EXTERNAL)])
def test_an_option_that_cannot_be_cached_is_refused_and_an_extra_digest_admits_the_external_ones(field: str) -> None:
    decision, value = CXX[field]
    changed = make_options(**{field: value})
    with pytest.raises(UncacheableError, match=field):
        key(options=changed)
    if decision == REFUSED:
        with pytest.raises(UncacheableError, match=field):
            key(options=changed, extra_digest=b"d")
    else:
        digested = key(options=changed, extra_digest=b"d")
        assert len({digested, key(options=changed, extra_digest=b"e"), key(extra_digest=b"d")}) == 3


@pytest.mark.parametrize(
    "one, other",
    [
        ({"ftz": 1}, {"ftz": True}),
        ({"debug": False}, {}),
        ({"ptxas_options": "-O1"}, {"ptxas_options": ["-O1"]}),
        ({"ptxas_options": ["-O1", "-v"]}, {"ptxas_options": ("-O1", "-v")}),
        ({"ptxas_options": []}, {}),
        ({"include_path": []}, {}),
        ({"define_macro": ("A", "2")}, {"define_macro": "A=2"}),
        ({"define_macro": ["A"]}, {"define_macro": "A"}),
        ({"diag_suppress": 1}, {"diag_suppress": ["1"]}),
        ({"name": None}, {"name": "default_program"}),
    ],
)
def test_options_that_the_compiler_cannot_tell_apart_are_one_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(options=make_options(**one)) == key(options=make_options(**other))


def test_the_order_of_macros_changes_the_key() -> None:
    assert key(options=make_options(define_macro=["A=1", "A=2"])) != key(
        options=make_options(define_macro=["A=2", "A=1"])
    )


def test_a_field_that_a_later_cuda_core_adds_changes_the_key_of_every_path() -> None:
    # Stands in for a later cuda.core: a dataclass field is what makes an option known to everybody but us.
    later = dataclasses.make_dataclass("Later", [("new_option", object, None)], bases=(core.ProgramOptions,))
    for code_type, target_type in (("c++", "cubin"), ("ptx", "cubin"), ("nvvm", "ptx")):
        keys = {
            key(options=later(arch="sm_90", new_option=value), code_type=code_type, target_type=target_type)
            for value in (None, True, "x", ["x"])
        }
        assert len(keys) == 4
        with pytest.raises(UncacheableError, match="new_option"):
            key(options=later(arch="sm_90", new_option=object()), code_type=code_type, target_type=target_type)


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_a_key_is_thirty_two_bytes_and_every_argument_changes_it() -> None:
    keys = [
        key(),
        key(code=SOURCE + " "),
        key(target_type="ptx"),
        key(target_type="ltoir"),
        key(code_type="ptx"),
        key(name_expressions=["scale<int>"]),
        key(name_expressions=[b"scale<int>"]),
        key(name_expressions=["scale<int>", "scale<float>"]),
        key(extra_digest=b""),
        key(extra_digest=b"x"),
    ]
    assert [len(each) for each in keys] == [32] * len(keys)
    assert len(set(keys)) == len(keys)


def test_code_and_target_types_are_taken_in_any_case() -> None:
    assert key(code_type="C++", target_type="CUBIN") == key()


def test_the_order_of_name_expressions_is_of_no_account() -> None:
    names = ["scale<int>", b"scale<int>", "k"]
    assert key(name_expressions=names) == key(name_expressions=iter(reversed(names)))


def test_every_bytes_like_extra_digest_of_the_same_bytes_is_the_same() -> None:
    assert key(extra_digest=b"abc") == key(extra_digest=bytearray(b"abc")) == key(extra_digest=memoryview(b"abc"))
