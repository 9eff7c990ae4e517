# SPDX-License-Identifier: Apache-2.0
"""Keys of numba's kernels: types that print alike, and programs. numba itself is not here; tests/frameworks has it."""

from __future__ import annotations

import dis
import enum
import subprocess
import sys
from collections import namedtuple
from types import FunctionType, ModuleType
from typing import Any

import pytest

from lockcache.integrations.framework_keys import NotDescribedError, describe_program, describe_types
from lockcache.integrations.framework_keys.numba import _globals_of


class _Type:
    """Prints its name, and is what its key is, as numba's types are."""

    __module__ = "numba.core.types"

    def __init__(self, name: str, key: Any = None) -> None:
        self.name = name
        self.key = name if key is None else key

    def __repr__(self) -> str:
        return self.name


_INT = _Type("int64")


def _name(*types: Any) -> str | None:
    try:
        return describe_types((tuple(types), ("sm_90",)))
    except NotDescribedError:
        return None


def _of_class(kind: type) -> _Type:
    return _Type("Point(int64 x 2)", (kind, (_INT, _INT)))


PAIRS = {
    "fields": (namedtuple("Point", "x y"), namedtuple("Point", "y x")),  # type: ignore[misc]
    "values": (enum.IntEnum("Color", {"R": 1}), enum.IntEnum("Color", {"R": 2})),  # type: ignore[misc]
    "modules": (type("A", (), {"__module__": "one"}), type("A", (), {"__module__": "other"})),
}


@pytest.mark.parametrize("which", PAIRS)
def test_types_that_print_alike_have_keys_of_their_own(which: str) -> None:
    one, other = PAIRS[which]
    assert _name(_of_class(one)) != _name(_of_class(other))
    assert _name(_Type("array", (_of_class(one), 1))) != _name(_Type("array", (_of_class(other), 1))), "inside others"
    assert _name(_of_class(one)) == _name(_of_class(one))


def test_what_another_process_cannot_tell_apart_has_no_key() -> None:
    assert _name(_INT) is not None
    assert _name(_Type("object", (object(),))) is None
    assert _name(type("Mine", (_Type,), {"__module__": "mine"})("mine")) is None, "compiled by code that is not known"
    endless = _Type("endless")
    endless.key = (endless,)
    assert _name(endless) is None


def test_the_order_of_a_set_is_not_part_of_a_key() -> None:
    names = [f"name{number}" for number in range(20)]
    one = _Type("record", frozenset(names))
    other = _Type("record", frozenset(reversed(names)))
    assert _name(one) == _name(other)


def _program(source: str, **names: Any) -> str:
    """Returns the digest of the function ``kernel`` of a module."""
    module = ModuleType("mine")
    vars(module).update(names)
    exec(compile(source, "/any/place.py", "exec"), vars(module))
    kernel = module.kernel
    assert isinstance(kernel, FunctionType)
    return describe_program(kernel, {"device": False, "link": []})


def _helper(**names: Any) -> ModuleType:
    helper = ModuleType("helper")
    vars(helper).update(names)
    return helper


class _Silent(enum.IntEnum):
    """Prints its names alone."""

    def __repr__(self) -> str:
        return self.name


@pytest.mark.parametrize(
    "source, one, other",
    [
        ("def kernel(x): return x + SCALE", {"SCALE": 1}, {"SCALE": 2}),
        ("def kernel(x): return x + SCALE", {"SCALE": 1}, {"SCALE": 1.0}),
        ("def kernel(x): return x + SCALE[0]", {"SCALE": (1, 2)}, {"SCALE": (2, 1)}),
        ("def kernel(x): return x + h.SCALE", {"h": _helper(SCALE=1)}, {"h": _helper(SCALE=2)}),
        ("def kernel(x): return x + h.sub.A", {"h": _helper(sub=_helper(A=1))}, {"h": _helper(sub=_helper(A=2))}),
        ("def kernel(x): return x + C.A", {"C": type("C", (), {"A": 1})}, {"C": type("C", (), {"A": 2})}),
        ("def kernel(x): return [SCALE for _ in x]", {"SCALE": 1}, {"SCALE": 2}),
        ("def kernel(x): return P.x", {"P": namedtuple("P", "x y")(1, 2)}, {"P": namedtuple("P", "y x")(1, 2)}),  # type: ignore[misc]
        ("def kernel(x): return C", {"C": _Silent("C", {"A": 1}).A}, {"C": _Silent("C", {"A": 2}).A}),  # type: ignore[misc]
    ],
)
def test_what_a_kernel_names_is_in_its_key(source: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert _program(source, **one) == _program(source, **one)
    assert _program(source, **one) != _program(source, **other)


def test_constants_of_the_code_and_what_it_encloses_are_in_its_key() -> None:
    assert _program("def kernel(x): return x + 1009") != _program("def kernel(x): return x + 2003")
    enclosing = "def make(a):\n    def kernel(x): return x + a\n    return kernel\nkernel = make({})"
    assert _program(enclosing.format(1)) != _program(enclosing.format(2))
    enclosing = "def make(c):\n    def kernel(x): return x + c.A\n    return kernel\nkernel = make(helper)"
    assert _program(enclosing, helper=_helper(A=1)) != _program(enclosing, helper=_helper(A=2))
    assert _program("def kernel(x, *, y=1): return y") != _program("def kernel(x, *, y=2): return y")
    assert _program("def kernel(x, y=1): return x + y") != _program("def kernel(x, y=2): return x + y")


def test_a_set_in_the_code_is_the_same_in_each_process() -> None:
    program = (
        "from lockcache.integrations.framework_keys import describe_program\n"
        "def kernel(x): return x in {'a', 'b', 'c', 'd', 'e'}\n"
        "print(describe_program(kernel, {}))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "1234"
    }
    assert len(said) == 1


def test_what_a_kernel_does_not_name_is_not_in_its_key() -> None:
    source = "def kernel(x): return x.SCALE"
    assert _program(source, SCALE=object()) == _program(source, SCALE=2)


def test_places_in_a_file_are_in_the_key_where_they_are_in_the_output() -> None:
    def made(path: str, space: str = " ") -> FunctionType:
        names: dict[str, Any] = {"__name__": "mine"}
        exec(compile(f"def kernel():{space}return 1", path, "exec"), names)
        found: FunctionType = names["kernel"]
        return found

    assert describe_program(made("/a.py"), {}) == describe_program(made("/b.py"), {})
    assert describe_program(made("/a.py"), {}) == describe_program(made("/a.py", "\n\n "), {})
    for option in ("debug", "lineinfo"):
        assert describe_program(made("/a.py"), {option: True}) != describe_program(made("/b.py"), {option: True})
        assert describe_program(made("/a.py"), {option: True}) != describe_program(
            made("/a.py", "\n\n "), {option: True}
        )


def _annotated(annotation: object) -> FunctionType:
    def kernel(out: Any) -> None:
        del out

    kernel.__annotations__ = {"out": annotation}
    return kernel


def test_annotations_are_part_of_a_program_where_the_compiler_reads_them() -> None:
    one, other = _annotated("int32[:]"), _annotated("int64[:]")
    assert describe_program(one, {}) == describe_program(other, {})
    assert describe_program(one, {}, has_annotations=True) != describe_program(other, {}, has_annotations=True)


def test_options_are_told_apart_in_any_order_and_what_runs_code_while_it_compiles_has_no_key() -> None:
    kernel = _annotated(None)
    names = {
        describe_program(kernel, {"opt": value}) for value in (True, 1, "True", False, 0.0, -0.0, (0, 1), (0, True))
    }
    assert len(names) == 8
    assert describe_program(kernel, {"opt": 1, "link": []}) == describe_program(kernel, {"link": (), "opt": 1})
    known = FunctionType((lambda: None).__code__, {"__name__": "numba.cuda"}, "known")
    assert describe_program(kernel, {"inline": known})
    evaluating = "experimental_ast_transforms"
    for options in ({evaluating: True}, {evaluating: (1,)}, {"inline": lambda: None}, {"link": ["a.cu"]}):
        with pytest.raises(NotDescribedError, match="the option"):
            describe_program(kernel, options)


def test_the_globals_that_code_loads_are_those_that_python_lists() -> None:
    """Also behind more names than one byte counts."""
    names: dict[str, Any] = {}
    exec("def kernel(x):\n" + "".join(f"    name{each}, x.part{each}\n" for each in range(300)), names)
    for function in [names["kernel"], *vars(dis).values(), *vars(subprocess.Popen).values()]:
        if isinstance(function, FunctionType):
            found = dis.get_instructions(function.__code__)
            loaded = {each.argval for each in found if each.opname == "LOAD_GLOBAL"}
            assert _globals_of(function.__code__) == sorted(loaded), function
