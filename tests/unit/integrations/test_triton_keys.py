"""Constants that Triton's keys lack. Triton itself is not here; tests/frameworks has it."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lockcache.integrations.triton_key import constants_elsewhere


def _jitted(source: str, **names: Any) -> SimpleNamespace:
    """Returns what has the function ``kernel`` of a module, as Triton's objects have it."""
    module = ModuleType("mine")
    vars(module).update(names)
    exec(compile(source, "/any/place.py", "exec"), vars(module))
    return SimpleNamespace(fn=module.kernel)


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
    ],
)
def test_a_constant_that_a_namespace_has_is_found(source: str, make: Any) -> None:
    one, same, other = (constants_elsewhere([_jitted(source, **make(value))]) for value in (64, 64, 128))
    assert one == same != other


def test_a_kernel_that_names_none_keeps_tritons_key() -> None:
    names = {"BLOCK": 64, "math": __import__("math"), "unused": _space(BLOCK=64)}
    assert constants_elsewhere([_jitted("def kernel(): return BLOCK + math.pi", **names), None, 7]) == ""
