# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from lockcache.integrations.inductor.spans import Spans


@pytest.mark.parametrize(
    "spans, covered_ns",
    [
        ([], 0),
        ([(12, 14)], 2),
        ([(0, 5), (25, 30)], 0),
        ([(5, 12), (18, 25)], 4),
        ([(14, 18), (12, 16)], 6),  # two threads
        ([(12, 18), (13, 14)], 6),
        ([(0, 30), (11, 12)], 10),
    ],
)
def test_time_that_spans_cover_counts_once(spans: list[tuple[int, int]], covered_ns: int) -> None:
    noted = Spans()
    for span in spans:
        noted.add(*span)
    assert noted.covered_ns(10, 20) == covered_ns


def test_a_block_that_raises_is_noted_too() -> None:
    noted = Spans()
    with pytest.raises(ZeroDivisionError), noted.noting():
        raise ZeroDivisionError
    assert noted.covered_ns(0, 1 << 63) > 0
