# SPDX-License-Identifier: Apache-2.0
"""Unambiguous bytes for plain values."""

from __future__ import annotations

from enum import Enum

import pytest
from hypothesis import example, given, settings, strategies as st

from lockcache.keys import hashing

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")) | st.binary(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def test_a_name_that_is_a_str_of_another_class_is_the_same_name() -> None:
    class Kind(str, Enum):
        PTX = "ptx"

    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    assert hashing.encode([Text("ptx")]) == hashing.encode(["ptx"]) == hashing.encode([Kind.PTX])
    with pytest.raises(TypeError, match="cannot put a set into a cache key"):
        hashing.encode({1})


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(PLAIN, PLAIN)
@example(["ab", "c"], ["a", "bc"])
@example(["asb", "c"], ["a", "bsc"])
@example([b"ayb", b"c"], [b"a", b"byc"])
@example([["a"], "b"], [["a", "b"]])
@example(["a"], [b"a"])
@example([1], [True])
@example([0], [None])
@example([], [[]])
@example("", b"")
@example(["1"], [1])
def test_two_values_have_the_same_bytes_only_if_they_are_the_same_value(one: object, other: object) -> None:
    # repr tells 1 from True and "a" from b"a", which == does not.
    assert (hashing.encode(one) == hashing.encode(other)) == (repr(one) == repr(other))


def test_a_list_and_a_tuple_of_the_same_values_have_the_same_bytes() -> None:
    assert hashing.encode(["a", ["b"]]) == hashing.encode(("a", ("b",)))


def test_a_value_without_a_stable_form_cannot_enter_a_key() -> None:
    with pytest.raises(TypeError, match="object"):
        hashing.encode([object()])
