# SPDX-License-Identifier: Apache-2.0
"""Space: what files count for, and how long they may be for that."""

from __future__ import annotations

import pytest

from lockcache.filestream.disk import Space


@pytest.mark.parametrize("space", [Space(1), Space(4096), Space(4096, 512), Space(512, 512)])
@pytest.mark.parametrize("taken", [5000, 8191, 8192, 8193, 9000, 10**9 + 7])
def test_the_largest_file_of_a_size_on_disk_is_the_largest(space: Space, taken: int) -> None:
    largest = space.largest_file_bytes(taken)
    assert space.of_bytes(largest) <= taken < space.of_bytes(largest + 1)
