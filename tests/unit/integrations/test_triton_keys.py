# SPDX-License-Identifier: Apache-2.0
"""Constants that Triton's keys lack. Triton itself is not here; tests/frameworks has it."""

from __future__ import annotations

import enum
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lockcache.integrations.framework_keys import known_modules
from lockcache.integrations.framework_keys.triton import (
    add_constants_to_keys,
    constants_elsewhere,
    constants_lacking,
    constants_printed_alike,
)


def _jitted(source: str, **names: Any) -> SimpleNamespace:
    """Returns what has the function ``kernel`` of a module, as Triton's objects have it."""
    module = ModuleType("mine")
    vars(module).update(names)
    exec(compile(source, "/any/place.py", "exec"), vars(module))
    return SimpleNamespace(fn=module.kernel)


class _Object:
    """Prints nothing of what it has."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    def __repr__(self) -> str:
        return "an object"


def _module_at(name: str, path: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    return module_from_spec(spec)


def _own_is_known(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns ``is_known`` without what it remembers of modules."""
    monkeypatch.setattr(known_modules, "_is_pythons", known_modules._is_pythons.__wrapped__)
    return known_modules.is_known


def _source_type() -> Any:
    """Returns a type like Triton's, whose key joins what constants print."""

    class Source:
        def __init__(self, constants: dict[int, Any], fn: Any = None) -> None:
            self.constants, self.fn = constants, fn

        def hash(self) -> str:
            return "-".join(map(str, self.constants.values()))

    return Source


def _space(**names: Any) -> ModuleType:
    space = ModuleType("space")
    vars(space).update(names)
    return space


@pytest.mark.parametrize(
    "source, make",
    [
        ("def kernel(): return config.BLOCK", lambda value: {"config": _space(BLOCK=value)}),
        ("def kernel(): return a.b.BLOCK", lambda value: {"a": _space(b=_space(BLOCK=value))}),
        ("def kernel(): return Config.BLOCK", lambda value: {"Config": type("Config", (), {"BLOCK": value})}),
        (
            "def kernel(): return other()",
            lambda value: {"other": _jitted("def kernel(): return c.BLOCK", c=_space(BLOCK=value))},
        ),
        (
            "def kernel(): return h.other()",
            lambda value: {"h": _space(other=_jitted("def kernel(): return c.BLOCK", c=_space(BLOCK=value)))},
        ),
        (
            "def kernel(): return Config.BLOCK",
            lambda value: {"Config": type("Config", (type("Base", (), {"BLOCK": value}),), {})},
        ),
        ("def kernel(): return c.config.BLOCK", lambda value: {"c": _space(config=_Object(BLOCK=value))}),
        ("def kernel(): return config.BLOCK", lambda value: {"config": _space(__getattr__={"BLOCK": value}.get)}),
        ("def kernel(): return [config.BLOCK for _ in (1, 2)]", lambda value: {"config": _space(BLOCK=value)}),
        ("def kernel(): return getattr(config, 'BLOCK')", lambda value: {"config": _space(BLOCK=value)}),
        ("def kernel(): return c.KIND", lambda value: {"c": _space(KIND=enum.Enum("Kind", {"A": value}).A)}),  # type: ignore[misc]
        (
            "def kernel(): return other()",
            lambda value: {"other": _jitted("def kernel(x=BLOCK): return x", BLOCK=value)},
        ),
        (
            "def kernel(): return other()",
            lambda value: {"other": _jitted("def kernel(*, x=BLOCK): return x", BLOCK=value)},
        ),
        (
            "def kernel(): return Parts()",
            lambda value: {
                "Parts": type("Parts", (), {"hash_attrs": [_jitted("def kernel(): return c.N", c=_space(N=value))]})
            },
        ),
    ],
)
def test_a_constant_from_elsewhere_is_found(source: str, make: Any) -> None:
    one, same, other = (constants_elsewhere([_jitted(source, **make(value))]) for value in (64, 64, 128))
    assert one == same != other


def test_a_kernel_that_names_none_keeps_tritons_key() -> None:
    names = {"math": __import__("math"), "unused": _space(BLOCK=64)}
    assert constants_elsewhere([_jitted("def kernel(x=64): return x + math.pi", **names), None, 7]) == ""
    assert constants_printed_alike({(1,): 64, (2,): True, (3,): None, (4,): "leaky_relu"}) == ""


def _function_type(*, has_constants: bool) -> Any:
    """Returns a type like Triton's functions, whose key has the constants of their module, or not, as before 3.5."""

    class Function:
        def __init__(self, fn: Any) -> None:
            self.fn = fn

        @property
        def cache_key(self) -> str:
            from triton.language.core import constexpr  # noqa: F401

            return ""

    class OlderFunction(Function):
        @property
        def cache_key(self) -> str:
            return ""

    return Function if has_constants else OlderFunction


@pytest.mark.parametrize("has_constants", [True, False])
def test_constants_of_the_kernels_own_module_are_added_where_tritons_key_lacks_them(has_constants: bool) -> None:
    constexpr = type("constexpr", (), {"__module__": "triton.language.core", "__init__": _Object.__init__})
    make = _function_type(has_constants=has_constants)
    one, same, other = (
        constants_lacking(SimpleNamespace(fn=make(_jitted("def kernel(): return N", N=constexpr(value=value)).fn)))
        for value in (64, 64, 128)
    )
    assert one == same
    assert (one == other) == has_constants
    assert bool(one) == (not has_constants)


@pytest.mark.parametrize("one, other", [({1: "1"}, {1: 1}), ({1: "a-b", 2: "c"}, {1: "a", 2: "b-c"})])
def test_constants_that_print_alike_have_keys_of_their_own(one: dict[int, Any], other: dict[int, Any]) -> None:
    source = _source_type()
    assert source(one).hash() == source(other).hash()
    add_constants_to_keys(source)
    assert source(one).hash() == source(dict(one)).hash() != source(other).hash()


def test_an_object_that_cannot_be_described_is_an_error_of_nobody_and_has_a_key_that_is_not_shared() -> None:
    source = _source_type()
    add_constants_to_keys(source)

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("not now")

    kernel = _jitted("def kernel(): return h.VALUE", h=_space(VALUE=Broken()))
    assert source({}, kernel).hash() != source({}, kernel).hash()


def test_a_module_that_is_named_like_one_of_pythons_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    is_known = _own_is_known(monkeypatch)
    monkeypatch.setitem(sys.modules, "wave", _module_at("wave", "/a/project/wave.py"))
    pythons, mine, others = ("math", "types"), ("mine", "mine.part"), ("wave", "__main__", "yours", None)
    assert [is_known(name, {"mine"}) for name in (*pythons, *mine, *others)] == [True] * 4 + [False] * 4
