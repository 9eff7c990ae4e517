# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import os

import pytest

from lockcache.integrations.inductor.values import pack, state_cost_ns, unpack


def as_torch_does(**said: object) -> bytes:
    return json.dumps(said).encode("ascii")


@pytest.mark.parametrize("pickle", [b"", b"\x80\x04", os.urandom(100_000)], ids=len)
def test_a_value_is_stored_without_base64_and_comes_back_as_it_was(pickle: bytes) -> None:
    value = as_torch_does(data=base64.b64encode(pickle).decode(), time_taken_ms=31, more={"a": ["ä"]})
    packed = pack(value)
    assert packed.endswith(pickle)
    assert len(packed) < len(pickle) + 100
    assert unpack(packed) == value


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no JSON",
        b"[1]",
        b"[" * 100_000,
        as_torch_does(config=1),
        as_torch_does(data={"a": 1}),
        as_torch_does(data="no base64!"),
        as_torch_does(data="gASV"[:-1]),
        b'{"data":"gASV"}',  # would come back with a space
        b'{"data": "gASV", "data": "gASV"}',
    ],
    ids=lambda value: value[:20],
)
def test_a_value_of_another_shape_is_stored_as_it_is(value: bytes) -> None:
    assert pack(value) == value == unpack(value)


@pytest.mark.parametrize("cut", range(30))
def test_a_value_that_was_cut_raises_nothing(cut: int) -> None:
    unpack(pack(as_torch_does(data="gASV", time_taken_ms=31))[:cut])


@pytest.mark.parametrize(
    "said, cost_ns",
    [(31, 31_000_000), (0, 0), (0.5, 500_000), (-3, 0), (1e300, 0), (float("nan"), 0), ("31", 0), (None, 0)],
)
def test_the_cost_is_the_time_that_torch_states(said: object, cost_ns: int) -> None:
    assert state_cost_ns(as_torch_does(data="gASV", time_taken_ms=said)) == cost_ns
    assert state_cost_ns(b"[1]") == 0
