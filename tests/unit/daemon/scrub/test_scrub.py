# SPDX-License-Identifier: Apache-2.0
"""Scrubbing: every entry gets its turn, at a bounded rate, and what is corrupt is found without a reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.repair import verify
from lockcache.filestream.repair.quarantine import measure_quarantine
from lockcache.filestream.repair.verify import OwnEntries, Verdict
from lockcache_daemon.scrub import scrub as scrubbing
from lockcache_daemon.scrub.scrub import Scrub
from lockcache_daemon.settings.rules import Rules
from tests.crash.damage import fill_to_damage, spoil
from tests.daemon.directories import accounting_is_exact
from tests.unit.material import descriptors, descriptors_to_begin_with

KEYS = [b"%d" % number for number in range(300)]
FAST = 10**12


@pytest.fixture
def directory(cache_path: Path) -> Iterator[CacheDirectory]:
    directory = CacheDirectory(str(fill_to_damage(cache_path, KEYS)), 2.0)
    yield directory
    directory.close()


@pytest.fixture
def make(directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scrub]]:
    """Scrubs without a bound on their share of a core, so that each tick is due."""
    monkeypatch.setattr(scrubbing, "_DUTY", 10**9)
    made = []

    def make(rate: int = FAST, found: Callable[[Verdict], object] = lambda verdict: None) -> Scrub:
        made.append(Scrub(OwnEntries(directory), rate, Rules(interval_seconds=0.05), found))
        return made[-1]

    yield make
    for scrub in made:
        scrub.close()


def _never() -> bool:
    return False


def run_a_round(scrub: Scrub) -> int:
    """Ticks until a round is over; how many."""
    for number in range(1, 10_000):
        if scrub.tick(_never):
            return number
    raise AssertionError("the round does not end")


def test_a_round_looks_at_every_entry_once_and_quarantines_what_is_corrupt(
    cache_path: Path, directory: CacheDirectory, make: Callable[..., Scrub]
) -> None:
    spoiled = {spoil(cache_path, b"7"), spoil(cache_path, b"8", "first bit flipped")}
    found: list[Verdict] = []
    scrub = make(found=found.append)
    run_a_round(scrub)
    assert scrub.last_round is not None
    assert scrub.last_round[1].states == {"whole": len(KEYS) - 2, "corrupt": 2}
    assert (scrub.total.entries, scrub.total.repaired) == (len(KEYS), 2)
    assert {verdict.name for verdict in found} == spoiled
    assert measure_quarantine(directory.layout).entries == 2
    assert accounting_is_exact(Path(directory.layout.root))


def test_after_a_whole_round_it_rests(make: Callable[..., Scrub], monkeypatch: pytest.MonkeyPatch) -> None:
    scrub = make()
    run_a_round(scrub)
    before = scrub.total.entries
    assert not any(scrub.tick(_never) for _ in range(20))
    assert scrub.total.entries == before
    monkeypatch.setattr(scrubbing, "_SHORTEST_ROUND_SECONDS", 0.0)
    again = make()
    run_a_round(again)
    run_a_round(again)
    assert again.total.entries == 2 * len(KEYS)


def test_it_reads_no_more_than_its_rate_allows(make: Callable[..., Scrub], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(scrubbing.time, "monotonic", lambda: now)
    rate = 20_000
    scrub = make(rate)
    largest = max(len(key) * 500 for key in KEYS)
    for second in range(1, 10):
        for _ in range(10):
            scrub.tick(_never)
        assert scrub.total.bytes <= second * rate + largest
        now += 1.0
    assert scrub.total.bytes > 5 * rate, "and it uses what is allowed"
    now += 3600.0
    before = scrub.total.bytes
    for _ in range(10):
        scrub.tick(_never)
    assert scrub.total.bytes - before <= 10 * rate + largest, "what was not used does not add up"


def test_one_that_is_made_later_goes_on_where_the_last_one_was(make: Callable[..., Scrub]) -> None:
    first = make(30_000)
    while not first.total.entries:  # a slice is a few milliseconds, in which a busy machine may do nothing
        first.tick(_never)
    seen = first.total.entries
    assert seen < len(KEYS)
    first.close()
    second = make()
    run_a_round(second)
    assert second.total.entries == len(KEYS) - seen
    run_a_round(second)
    assert second.total.entries == 2 * len(KEYS) - seen, "a part of a round is not rested after"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"behind": 7}', b'{"behind": "../../etc"}', b"\xff" * 5000])
def test_a_damaged_memory_of_where_it_was_is_a_beginning(
    directory: CacheDirectory, make: Callable[..., Scrub], content: bytes
) -> None:
    Path(directory.layout.scrub).write_bytes(content)
    scrub = make()
    run_a_round(scrub)
    assert scrub.total.entries == len(KEYS)


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_something_planted_in_place_of_its_memory_is_neither_read_nor_a_hang(
    directory: CacheDirectory, make: Callable[..., Scrub], plant: Callable[[str], object]
) -> None:
    plant(directory.layout.scrub)
    scrub = make()
    while scrub.total.entries < len(KEYS):
        try:
            scrub.tick(_never)
        except IsADirectoryError:
            assert os.path.isdir(directory.layout.scrub)
    assert Path("/etc/passwd").stat().st_size > 100


def _tick_until_in_the_middle(scrub: Scrub, before: object) -> None:
    """By ticks that may read a megabyte each; on a busy machine one of them may not come as far as the large entry."""
    while descriptors() == before:
        scrub._allowance = 1 << 20
        scrub.tick(_never)


def test_a_large_entry_is_read_over_several_ticks_and_let_go_of_when_it_is_evicted(
    cache_path: Path, make: Callable[..., Scrub], directory: CacheDirectory
) -> None:
    cache = FileStreamProgramCache(cache_path)
    cache.clear()
    cache[b"large"] = bytes(20 << 20)
    before = descriptors_to_begin_with()
    scrub = make(1 << 20)
    _tick_until_in_the_middle(scrub, before)
    del cache[b"large"]
    scrub._allowance = FAST
    run_a_round(scrub)
    assert scrub.total.entries == 0
    assert descriptors() == before


def test_closing_in_the_middle_leaves_nothing_open(
    cache_path: Path, make: Callable[..., Scrub], directory: CacheDirectory
) -> None:
    FileStreamProgramCache(cache_path)[b"large"] = bytes(20 << 20)
    before = descriptors_to_begin_with()
    scrub = make(1 << 20)
    _tick_until_in_the_middle(scrub, before)
    scrub.close()
    assert descriptors() == before


def test_a_shard_that_cannot_be_listed_is_said_and_passed_over(
    directory: CacheDirectory, make: Callable[..., Scrub], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = verify.entry_names

    def names(layout: object, shard: int) -> list[str]:
        if shard == 0x40:
            raise OSError(5, "Input/output error", "entries/40")
        return real(layout, shard)  # type: ignore[arg-type]

    monkeypatch.setattr(verify, "entry_names", names)
    scrub = make()
    errors = 0
    for _ in range(10_000):
        try:
            if scrub.tick(_never):
                break
        except OSError:
            errors += 1
    assert errors == 1
    assert scrub.total.entries == sum(entry_name(key)[:2] != "40" for key in KEYS)


def test_told_to_stop_it_does_one_more_step_and_no_other(make: Callable[..., Scrub]) -> None:
    scrub = make()
    scrub.tick(lambda: True)
    assert scrub.total.entries <= 1


def test_a_complete_pass_is_every_entry_now(cache_path: Path, make: Callable[..., Scrub]) -> None:
    spoil(cache_path, b"7")
    shards = []
    done = make(1).complete(lambda: shards.append(1), lambda: None)
    assert len(shards) == 256
    assert done.states == {"whole": len(KEYS) - 1, "corrupt": 1}
