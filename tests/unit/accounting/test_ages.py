# SPDX-License-Identifier: Apache-2.0
"""The ages of a directory: they rise, a few points stand for many, and any bytes are some ages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.accounting import Worth
from lockcache.filestream.accounting.ages import MOST_AGE, Ages, _dispensable
from lockcache.filestream.accounting.head import AGES_AT, AGES_END
from tests.unit.material import property_test

AGES_BYTES = AGES_END - AGES_AT


def decode_ages(blob: bytes) -> Ages:
    return Worth(bytes(AGES_AT) + blob[:AGES_BYTES]).ages


def encode_ages(ages: Ages) -> bytes:
    worth = Worth()
    worth.ages = ages
    return dict(worth.changed()).get(AGES_AT, bytes(AGES_BYTES))


def test_before_the_first_eviction_everything_is_of_age_0() -> None:
    assert Ages().at(10**18) == 0
    ages = Ages().raised(100, 5.0)
    assert [ages.at(time_ns) for time_ns in (99, 100, 10**18)] == [0, 5, 5]


def test_the_age_never_falls_and_a_clock_that_was_ahead_does_not_stop_it() -> None:
    ages = Ages().raised(1000, 5.0).raised(2000, 3.0)
    assert ages == Ages((1000,), (5.0,))
    ages = ages.raised(10**18, 7.0).raised(3000, 6.0)
    assert ages == Ages((1000, 3000), (5.0, 7.0))


@property_test
@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.001, 1000)), min_size=1, max_size=400))
def test_64_points_tell_the_age_of_any_time_to_a_fifth_of_what_it_has_risen_since(steps) -> None:
    ages, exact, now_ns, age = Ages(), [], 0, 0.0
    for after_ns, rise in steps:
        now_ns, age = now_ns + after_ns, age + rise
        ages = ages.raised(now_ns, age)
        exact.append((now_ns, age))
    assert len(ages.ages) <= 64
    assert ages.at(now_ns) == age
    for at_ns, was in exact:
        assert ages.at(at_ns) <= was
        assert was - ages.at(at_ns) <= 0.2 * (age - ages.at(at_ns)) + max(rise for _, rise in steps)
    assert decode_ages(encode_ages(ages)) == ages


@property_test
@given(st.binary(max_size=AGES_BYTES + 50))
def test_any_bytes_are_ages_that_rise_and_go_on_rising(blob) -> None:
    ages = decode_ages(blob)
    assert len(ages.ages) == len(ages.times_ns) <= 64
    assert [*ages.times_ns] == sorted(ages.times_ns)
    assert [*ages.ages] == sorted(ages.ages)
    assert all(math.isfinite(age) and 0 <= age < MOST_AGE for age in ages.ages)
    risen = ages.raised(2 * 10**18, ages.at(2**63) + 10**4)
    assert decode_ages(encode_ages(risen)) == risen
    assert len(encode_ages(risen)) == AGES_BYTES


@pytest.mark.parametrize("age", [math.nan, math.inf, -1.0, MOST_AGE])
def test_an_impossible_age_is_left_out(age) -> None:
    assert decode_ages(encode_ages(Ages((1, 2), (age, 3.0)))) == Ages((2,), (3.0,))


def test_an_age_that_damage_left_rises_or_begins_anew_so_that_nothing_stays_for_ever() -> None:
    nearly = math.nextafter(MOST_AGE, 0)
    assert decode_ages(encode_ages(Ages((1,), (nearly,)))).raised(2, nearly + 10**4) == Ages()
    risen = Ages((1,), (nearly - 1,)).raised(2, nearly - 1 + 0.5)
    assert risen.times_ns == (1, 2)
    assert Ages().raised(1, 10**18) == Ages()


def test_the_first_age_is_known_however_often_it_has_risen_since() -> None:
    ages = Ages()
    for step in range(1, 400):
        ages = ages.raised(step, float(step))
    assert (ages.times_ns[0], ages.at(1), ages.at(399)) == (1, 1.0, 399.0)


def test_the_point_that_is_missed_least_is_left_out() -> None:
    assert _dispensable([0.0, 1.0, 1.1, 10.0]) == 1
    assert _dispensable([0.0, 4.0, 5.0, 5.1, 20.0]) == 2
