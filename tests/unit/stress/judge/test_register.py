# SPDX-License-Identifier: Apache-2.0
"""The register says stale only where order is certain, and then always."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.judge import register as register_module
from lockcache_stress.judge.register import Register, Stamp
from tests.stress.support import make_plan


class _Clock:
    """Stands in for the monotonic clock, so that orders are exact: each reading is 10 us later."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(register_module, "now_us", clock)
    return clock


@pytest.fixture
def writers(tmp_path: Path) -> list[Register]:
    """Three processes' views of one register."""
    plan = make_plan(tmp_path)
    return [Register(plan, writer, 0) for writer in range(3)]


def _write(register: Register, key: int = 0) -> Stamp:
    stamp = register.begin_write(key)
    register.end_write(key, stamp)
    return stamp


def test_the_last_value_is_never_stale(writers: list[Register]) -> None:
    stamp = _write(writers[0])
    assert not writers[1].is_stale(writers[1].begin_read(0), stamp)


@pytest.mark.parametrize("overwriter", [0, 1], ids=["its own writer", "another"])
def test_a_value_that_was_overwritten_before_the_read_began_is_stale(writers: list[Register], overwriter: int) -> None:
    old = _write(writers[0])
    _write(writers[overwriter])
    assert writers[2].is_stale(writers[2].begin_read(0), old)


def test_a_value_that_was_overwritten_during_the_read_is_not_stale(writers: list[Register]) -> None:
    old = _write(writers[0])
    snapshot = writers[2].begin_read(0)
    _write(writers[1])
    assert not writers[2].is_stale(snapshot, old)


def test_of_two_overlapping_writes_neither_is_stale_whichever_returned_last(writers: list[Register]) -> None:
    first = writers[0].begin_write(0)
    second = writers[1].begin_write(0)
    writers[1].end_write(0, second)
    writers[0].end_write(0, first)
    snapshot = writers[2].begin_read(0)
    assert not writers[2].is_stale(snapshot, first)
    assert not writers[2].is_stale(snapshot, second)


def test_an_unfinished_write_makes_nothing_stale_and_is_not_stale(writers: list[Register]) -> None:
    old = _write(writers[0])
    killed = writers[1].begin_write(0)
    snapshot = writers[2].begin_read(0)
    assert not writers[2].is_stale(snapshot, old)
    _write(writers[0])
    assert not writers[2].is_stale(writers[2].begin_read(0), killed)


def test_a_value_that_was_deleted_before_the_read_began_is_stale(writers: list[Register]) -> None:
    old = _write(writers[0])
    writers[1].overwritten(0, writers[1].elapsed_us())
    assert writers[2].is_stale(writers[2].begin_read(0), old)


def test_once_a_newer_value_was_read_an_older_one_is_stale_also_while_its_writer_goes_on(
    writers: list[Register],
) -> None:
    old = _write(writers[0])
    new = writers[1].begin_write(0)
    writers[2].overwritten(0, new.started_us)  # a read gave the new value
    snapshot = writers[0].begin_read(0)
    assert writers[0].is_stale(snapshot, old)
    assert not writers[0].is_stale(snapshot, new)


def test_writes_of_other_keys_say_nothing(writers: list[Register]) -> None:
    stamp = _write(writers[0], key=1)
    _write(writers[1], key=2)
    assert not writers[2].is_stale(writers[2].begin_read(1), stamp)


def test_a_write_that_was_given_up_neither_excuses_an_older_value_nor_overwrites_one(writers: list[Register]) -> None:
    old = _write(writers[0])
    given_up = writers[1].begin_write(0)
    writers[1].abandon_write(0, given_up)
    assert not writers[2].is_stale(writers[2].begin_read(0), old)
    assert not writers[2].is_stale_variant(0, writers[2].begin_read(0), 0)
    newer = writers[2].begin_write(0, 0)
    writers[2].end_write(0, newer)
    assert writers[0].is_stale(writers[0].begin_read(0), old)


def test_while_a_write_may_still_happen_its_variant_is_excused_and_not_after_it_was_given_up(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, variants=2)
    one, other = Register(plan, 0, 0), Register(plan, 1, 0)
    one.end_write(0, one.begin_write(0, variant=0))
    one.end_write(0, one.begin_write(0, variant=1))
    pending = other.begin_write(0, variant=0)
    assert not one.is_stale_variant(0, one.begin_read(0), 0)
    other.abandon_write(0, pending)
    assert one.is_stale_variant(0, one.begin_read(0), 0)
