# SPDX-License-Identifier: Apache-2.0
"""Kinds of Triton's sources: whichever fails, the turn that it began with ends."""

from __future__ import annotations

from typing import Any

from lockcache.integrations.triton import adapting as triton


def test_a_kind_that_is_derived_later_keeps_what_its_other_bases_do() -> None:
    class Source:
        def make_ir(self) -> str:
            return "ir"

    class Mixin:
        def __init_subclass__(cls, **options: Any) -> None:
            seen.append((cls.__name__, options))
            super().__init_subclass__()

    seen: list[tuple[str, dict[str, Any]]] = []
    triton._end_turns_of_later(Source)

    class Derived(Source, Mixin, kind="gluon"):
        def make_ir(self) -> str:
            return "derived"

    assert seen == [("Derived", {"kind": "gluon"})]
    assert Derived().make_ir() == "derived"
    assert hasattr(Derived.make_ir, "__wrapped__")
