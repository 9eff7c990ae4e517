# SPDX-License-Identifier: Apache-2.0
"""Keys of links: every field of cuda.core's LinkerOptions, every argument, and what each does to the output."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytestmark = pytest.mark.cuda

core = pytest.importorskip("cuda.core")

from lockcache.errors import UncacheableError  # noqa: E402
from lockcache.explain import statement_of  # noqa: E402
from lockcache.keys import link_key, linking  # noqa: E402
from tests.cuda.keys import run_script  # noqa: E402
from tests.cuda.link_pairs import CHANGES, OPTIONS, try_pairs  # noqa: E402
from tests.cuda.objects import HELPER, KERNEL, LTO, LTO_PTX, link_really, linker_options, units  # noqa: E402
from tests.matrix_sampling import EXHAUSTIVE  # noqa: E402

#: What the pairs choose by the target.
MODES = {"link_time_optimization": True, "ptx": True}

OBJECTS = (("ptx", b"a"), ("ltoir", b"b"))


def key(options: Any = None, objects: Any = OBJECTS, target: str = "cubin") -> bytes:
    options = options or linker_options()
    return link_key(objects, options=options, rendered=options.as_bytes(), target_type=target)


def parts(key: bytes) -> dict[str, str]:
    stated = statement_of(key)
    assert stated is not None
    return {part.name: part.hash for part in stated.parts}


def test_every_field_of_linker_options_has_been_decided_about() -> None:
    fields = {each.name for each in dataclasses.fields(core.LinkerOptions)}
    assert fields - (linking.RENDERED | linking.UNSEEN) == set(), "new: decide in lockcache/keys/linking.py"
    assert fields == linking.RENDERED | linking.UNSEEN
    assert set(OPTIONS) | set(MODES) == linking.RENDERED


@pytest.mark.parametrize("field", [*OPTIONS, *MODES])
def test_an_option_that_nvjitlink_sees_changes_the_key_and_the_part_of_its_name(field: str) -> None:
    changed = linker_options(**{field: {**OPTIONS, **MODES}[field]})
    assert key(changed) != key()
    assert key(changed) == key(linker_options(**{field: {**OPTIONS, **MODES}[field]}))
    before, after = parts(key()), parts(key(changed))
    named = {name for name in before | after if before.get(name) != after.get(name)} - {"order of options"}
    rendered = set(changed.as_bytes()) ^ set(linker_options().as_bytes())
    assert named == {f"option {each.decode().lstrip('-').partition('=')[0]}" for each in rendered}


def test_what_nvjitlink_does_not_see_leaves_the_key_alone() -> None:
    assert key(linker_options(name="other")) == key()
    with pytest.warns(DeprecationWarning, match="numba_debug"):
        changed = linker_options(numba_debug=True)
    assert key(changed) == key()


@pytest.mark.parametrize(
    "one, other",
    [
        ({"ftz": 1}, {"ftz": True}),
        ({"debug": False}, {}),
        ({"ptxas_options": "-O1"}, {"ptxas_options": ["-O1"]}),
        ({"kernels_used": "k"}, {"kernels_used": ["k"]}),
        ({"kernels_used": ("k",)}, {}),  # cuda.core 1.2.2 leaves it out
        ({"kernels_used": []}, {}),
        ({"kernels_used": 5}, {}),
        ({"ptxas_options": {"-O1"}}, {}),
    ],
    ids=str,
)
def test_options_that_nvjitlink_cannot_tell_apart_are_one_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(linker_options(**one)) == key(linker_options(**other))


def test_a_field_that_a_later_cuda_core_adds_changes_the_key() -> None:
    # Stands in for a later cuda.core.
    later = dataclasses.make_dataclass("Later", [("new_option", object, None)], bases=(core.LinkerOptions,))
    assert key(later(arch="sm_90")) == key()
    assert len({key(later(arch="sm_90", new_option=value)) for value in (None, True, "x", ["x"])}) == 4
    with pytest.raises(UncacheableError, match="new_option"):
        key(later(arch="sm_90", new_option=object()))


def test_every_argument_changes_the_key() -> None:
    (kind, code), last = OBJECTS
    keys = [
        key(),
        key(target="ptx"),
        key(objects=OBJECTS[::-1]),
        key(objects=OBJECTS[:1]),
        key(objects=[*OBJECTS, last]),
        key(objects=[("cubin", code), last]),
        key(objects=[(kind, code + b"b"), ("ltoir", b"")]),
    ]
    assert [len(each) for each in keys] == [32] * len(keys)
    assert len(set(keys)) == len(keys)


def test_the_parts_of_a_key_name_each_object_and_hold_no_code() -> None:
    before, after = parts(key()), parts(key(objects=[OBJECTS[0], ("ltoir", b"c")]))
    assert [name for name in before if before[name] != after[name]] == ["object 2"]
    assert {"object 1", "object 2", "target", "compiler", "option arch", "code type"} <= set(before)


@pytest.mark.parametrize("given", ["--options-file=x", ["-O1", "-optf", "x"], ["--apply-controls=x"]], ids=str)
def test_ptxas_options_that_read_a_file_are_refused_without_offering_a_digest(given: Any) -> None:
    with pytest.raises(UncacheableError, match="ptxas reads a file") as error:
        key(linker_options(ptxas_options=given))
    assert "extra_digest" not in str(error.value)


_SCRIPT = """
import hashlib
from tests.cuda.objects import link_really, linker_options, units
from lockcache.keys import link_key
kind, target, more = {way!r}
options = linker_options(**more)
print(hashlib.sha256(link_really(units(kind), target, **more)[0]).hexdigest())
objects = [(each.code_type, each.code) for each in units(kind)]
print(link_key(objects, options=options, rendered=options.as_bytes(), target_type=target).hex())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "variable, value, way",
    [
        ("NV_NVVM_VERSION", "nvvm-latest", ("ltoir", "cubin", LTO)),
        ("NV_NVVM_VERSION", "nvvm-latest", ("ltoir", "ptx", LTO_PTX)),
        ("FINALIZER_USE_LEGACY_ELF_BUILDER", "1", ("ltoir", "cubin", LTO)),
    ],
    ids=str,
)
def test_a_variable_that_changes_the_output_changes_the_key(variable: str, value: str, way: Any) -> None:
    plain, changed = (run_script(_SCRIPT.format(way=way), **more) for more in ({}, {variable: value}))
    assert plain[0] != changed[0], "this nvJitLink no longer minds the variable"
    assert plain[1] != changed[1]


def test_an_object_of_another_compilation_changes_the_output_and_the_order_of_ptx_does() -> None:
    plain = link_really(units("ptx"), "cubin")[0]
    assert link_really(units("ptx", HELPER, KERNEL), "cubin")[0] != plain
    assert link_really(units("ptx"), "cubin")[0] == plain, "nvJitLink makes the same of the same"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=EXHAUSTIVE)])
def test_of_random_pairs_whatever_gives_another_output_has_another_key(seed: int) -> None:
    found = try_pairs(len(CHANGES), seed)
    assert found.wrong == []
    assert found.keys["names of objects"] == found.keys["objects as files"] == found.keys["working directory"] == 0
    for change in found.pairs:
        assert found.outputs[change] <= found.keys[change], change


@pytest.mark.long
def test_a_key_that_leaves_something_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from lockcache.cuda import linker

    def forgetful(objects: Any, *, options: Any, rendered: list[bytes], target_type: str) -> bytes:
        return link_key(sorted(objects), options=options, rendered=rendered[:1], target_type=target_type)

    monkeypatch.setattr(linker, "link_key", forgetful)
    wrong = try_pairs(len(CHANGES), 1).wrong
    assert {each.partition(":")[0] for each in wrong} >= {"order of objects", "option debug"}
