# SPDX-License-Identifier: Apache-2.0
"""The judgement of a schedule: reads that an order of the operations explains."""

from __future__ import annotations

import pytest

from lockcache_stress.schedules.judge import is_explained
from lockcache_stress.schedules.running import decode, encode


def did(kind, value, start, end, **more):
    return {"kind": kind, "value": value, "start": start, "end": end, "number": 0, **more}


@pytest.mark.parametrize(
    "events",
    [
        [did("put", "b", 0, 9), did("get", "a", 1, 2), did("get", "b", 3, 4)],
        [did("put", "b", 0, None, died=5), did("get", "a", 6, 7)],
        [did("put", "b", 0, None, died=5), did("get", "b", 6, 7)],
        [did("remove", "", 0, 5), did("get", "a", 1, 2), did("get", "", 3, 4)],
    ],
)
def test_these_reads_are_right(events):
    assert is_explained(events, "a", may_vanish=False)


@pytest.mark.parametrize(
    "events",
    [
        [did("put", "b", 0, 1), did("get", "a", 2, 3)],
        [did("put", "b", 0, 9), did("get", "b", 1, 2), did("get", "a", 3, 4)],
        [did("put", "b", 0, None, died=5), did("get", "b", 6, 7), did("get", "a", 8, 9)],
        [did("get", "", 2, 3)],
        [did("put", "b", 0, 1), did("put", "c", 2, 3), did("get", "b", 4, 5)],
    ],
)
def test_these_are_not(events):
    assert not is_explained(events, "a", may_vanish=False)


def test_a_value_may_be_gone_where_somebody_evicts_and_does_not_come_back_older():
    assert is_explained([did("get", "", 2, 3)], "a", may_vanish=True)
    assert not is_explained([did("put", "b", 0, 1), did("get", "", 2, 3), did("get", "a", 4, 5)], "a", may_vanish=True)


def test_integers_name_a_schedule():
    choices = [0, 0, 0, 1, 3, 0]
    assert encode(choices, 2) == [0, 3, 1, 1, 3, 0, 1]
    assert decode([0, 3, 1, 1, 3, 0, 1], 2) == choices
    assert decode([0, 3, 1], 2) == [0, 0, 0, 1]
    with pytest.raises(ValueError, match="neither"):
        decode([4, 1], 2)
