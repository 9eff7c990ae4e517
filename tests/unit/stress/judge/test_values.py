"""A value proves which write it is, and anything else proves nothing."""

from __future__ import annotations

import random

import pytest

from lockcache_stress.judge.reads import SMALLEST_BYTES, Proof, make_value, parse_value
from lockcache_stress.judge.register import Stamp

_TOKEN = b"runtoken"
_STAMP = Stamp(writer=3, variant=0, serial=17, started_us=123_456)


@pytest.mark.parametrize("size", [0, SMALLEST_BYTES, 100, 65_536, 3_000_000])
def test_a_value_of_any_size_proves_its_write(size: int) -> None:
    value = make_value(_TOKEN, 5, _STAMP, size)
    assert len(value) == max(size, SMALLEST_BYTES)
    assert parse_value(value) == Proof(_TOKEN, 5, _STAMP)


def test_a_value_that_was_cut_anywhere_proves_nothing() -> None:
    value = make_value(_TOKEN, 5, _STAMP, 200)
    assert all(parse_value(value[:end]) is None for end in range(len(value)))


def test_a_value_with_any_bit_flipped_proves_nothing() -> None:
    value = bytearray(make_value(_TOKEN, 5, _STAMP, 150))
    for bit in range(len(value) * 8):
        value[bit // 8] ^= 1 << bit % 8
        assert parse_value(bytes(value)) is None
        value[bit // 8] ^= 1 << bit % 8


def test_the_begin_of_one_value_with_the_end_of_another_proves_nothing() -> None:
    first = make_value(_TOKEN, 5, _STAMP, 5000)
    second = make_value(_TOKEN, 5, _STAMP._replace(serial=18), 5000)
    rng = random.Random(0)
    mixed = {first[:end] + second[end:] for end in (rng.randrange(1, 5000) for _ in range(100))}
    assert all(parse_value(value) is None for value in mixed - {first, second})


def test_a_value_with_something_behind_it_proves_nothing() -> None:
    assert parse_value(make_value(_TOKEN, 5, _STAMP, 200) + b"\0") is None
