# SPDX-License-Identifier: Apache-2.0
"""The table of compile costs: advice that survives eviction."""

from __future__ import annotations

import os

from lockcache.filestream.accounting import FILE_BYTES
from lockcache.filestream.compile_once.costs import CostTable
from lockcache.filestream.disk.layout import Layout, entry_name

SECOND = 10**9


def test_what_was_remembered_last_is_known_to_every_object(layout):
    table, name = CostTable(layout), entry_name(b"k")
    assert table.cost_ns(name) == 0
    table.remember(name, 5 * SECOND)
    table.remember(name, 7 * SECOND)
    table.remember(name, SECOND // 2)  # too short to say anything to who waits
    assert CostTable(layout).cost_ns(name) == 7 * SECOND


def test_a_key_does_not_get_the_cost_of_another_one_in_its_place(layout):
    table = CostTable(layout)
    name = "ab" * 32
    twin = "cd" * 16 + name[32:]
    table.remember(name, 5 * SECOND)
    assert table.cost_ns(twin) == 0
    table.remember(twin, 7 * SECOND)
    assert (table.cost_ns(name), table.cost_ns(twin)) == (0, 7 * SECOND)


def test_the_table_does_not_grow_with_the_keys(layout):
    table = CostTable(layout)
    for number in range(3000):
        table.remember(entry_name(b"%d" % number), SECOND + number)
    assert os.path.getsize(layout.state) == FILE_BYTES
    known = sum(table.cost_ns(entry_name(b"%d" % number)) == SECOND + number for number in range(3000))
    assert known > 900, "nearly every slot knows its last key"


def test_where_nothing_can_be_written_nothing_is_known_and_nothing_raised(cache_path):
    table = CostTable(Layout(str(cache_path)))
    table.remember(entry_name(b"k"), 5 * SECOND)
    assert table.cost_ns(entry_name(b"k")) == 0


def test_damage_is_not_a_cost(layout):
    table, name = CostTable(layout), entry_name(b"k")
    table.remember(name, -5)
    assert table.cost_ns(name) == 0
    with open(layout.state, "wb") as file:
        file.write(b"short")
    assert table.cost_ns(name) == 0
