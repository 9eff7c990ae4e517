# SPDX-License-Identifier: Apache-2.0
"""The filters of an operator: their meaning, and that exactly what they name is removed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.accounting.scan import Found
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.eviction.choose import Goal
from lockcache.filestream.inspect.describe import Described, find_entry
from lockcache.filestream.inspect.select import Census, Selection, choose_selected, evict_selected, select_entries
from lockcache.filestream.repair.recount import recount_all


def entry(**known: str) -> Described:
    return Described("0" * 64, 1, 0, 1, "whole", **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "selection, known, is_meant",
    [
        (Selection(), {}, True),
        (Selection(kind=("cubin",)), {"kind": "cubin"}, True),
        (Selection(kind=("CUBIN",)), {"kind": "cubin"}, True),
        (Selection(kind=("cubin",)), {}, False),
        (Selection(kind=("unknown",)), {}, True),
        (Selection(arch=("sm_7*",)), {"arch": "sm_75"}, True),
        (Selection(arch=("sm_7*",)), {"arch": "sm_90"}, False),
        (Selection(arch=("sm_90",)), {"arch": "sm_90a"}, False),
        (Selection(compiler=("nvrtc 12.*",)), {"compiler": "nvrtc 12.4"}, True),
        (Selection(compiler=("nvrtc 12.*",)), {"compiler": "nvrtc 13.5"}, False),
        (Selection(compiler=("13.5",)), {"compiler": "nvrtc 13.5.37"}, True),
        (Selection(compiler=("13.5",)), {"compiler": "nvrtc 13.50"}, False),
        (Selection(compiler=("nvrtc",)), {"compiler": "nvrtc 13.5"}, True),
        (Selection(compiler=("unknown",)), {}, True),
        (Selection(kind=("cubin",), arch=("sm_90",)), {"kind": "cubin", "arch": "sm_75"}, False),
        (Selection(arch=("sm_80", "sm_9*")), {"arch": "sm_90"}, True),
        (Selection(arch=("sm_80", "sm_9*")), {"arch": "sm_75"}, False),
        (Selection(label=("gemm*",)), {"label": "gemm3"}, True),
        (Selection(label=("gemm*",)), {}, False),
    ],
)
def test_all_that_is_asked_for_must_hold(selection: Selection, known: dict[str, str], is_meant: bool) -> None:
    assert selection.matches(entry(**known)) is is_meant


def test_unused_for_so_long_is_judged_by_the_last_use() -> None:
    selection = Selection(unused_seconds=10)
    assert selection.admits(Found(0, "0" * 64, 1, 1), 11 * 10**9)
    assert not selection.admits(Found(2 * 10**9, "0" * 64, 1, 1), 11 * 10**9)


def test_used_within_so_long_is_judged_by_the_last_use() -> None:
    selection = Selection(used_seconds=10, unused_seconds=5)
    assert [selection.admits(Found(0, "0" * 64, 1, 1), now * 10**9) for now in (4, 9, 11)] == [False, True, False]


def test_one_pattern_that_is_not_in_a_tuple_is_refused() -> None:
    with pytest.raises(TypeError, match="'cubin'"):
        Selection(kind="cubin")  # type: ignore[arg-type]


def test_a_value_that_nothing_has_is_refused_with_those_there_are() -> None:
    selection = Selection(kind=("cubin", "cubn"), arch=("sm_90",))
    census = Census(selection)
    census.refuse_unmatched()  # nothing is there: no filter is wrong
    for kind in ("ltoir", "cubin"):
        census.add(entry(kind=kind, arch="sm_90"))
    with pytest.raises(ValueError, match=r"^no kind 'cubn' here; there are: cubin, ltoir$"):
        census.refuse_unmatched()


def test_values_of_several_words_are_written_as_a_shell_takes_them() -> None:
    census = Census(Selection(compiler=("nvrtc 12",)))
    for compiler in ("nvrtc 13.5.37", "ptxas", "nvrtc 11.8"):
        census.add(entry(compiler=compiler))
    with pytest.raises(ValueError, match=r"there are: 'nvrtc 11\.8', 'nvrtc 13\.5\.37', ptxas$"):
        census.refuse_unmatched()


def test_an_error_names_no_more_values_than_a_screen_holds() -> None:
    census = Census(Selection(label=("gemm",)))
    for number in range(1000):
        census.add(entry(label=f"kernel{number}"))
    with pytest.raises(ValueError, match=r", \.\.\.$") as caught:
        census.refuse_unmatched()
    assert len(str(caught.value)) < 400


@pytest.fixture
def opened(cache_path: Path) -> CacheDirectory:
    with FileStreamProgramCache(cache_path) as cache:
        for number in range(40):
            cache.put_entry(f"k{number}", Entry(b"x" * 100, {"kind": "cubin", "arch": f"sm_{70 + number % 2}"}))
    return CacheDirectory(str(cache_path), 5.0)


def chosen(opened: CacheDirectory, selection: Selection, needed_bytes: int | None = None) -> list[Found]:
    return choose_selected(opened.layout, selection, needed_bytes, time.time_ns(), lambda: None)


def test_what_is_meant_goes_and_the_accounting_is_exact(opened: CacheDirectory) -> None:
    reported: list[int] = []
    gone = evict_selected(opened, chosen(opened, Selection(arch=("sm_70",))), None, reported.append)
    assert (gone.entries, gone.bytes, sum(reported)) == (20, 2000, 20)
    assert opened.usage().total() == (2000, 20)
    assert recount_all(opened) == []


def test_down_to_a_size_the_least_recently_used_of_what_is_meant_go(opened: CacheDirectory) -> None:
    for number in range(40):
        os.utime(opened.layout.entry(entry_name(b"k%d" % number)), ns=(number * 10**9, number * 10**9))
    victims = chosen(opened, Selection(arch=("sm_71",)), 450)
    evict_selected(opened, victims, Goal(3550), lambda count: None)
    assert {victim.name for victim in victims} == {entry_name(b"k%d" % number) for number in (1, 3, 5, 7, 9)}
    assert opened.usage().total() == (3500, 35)


def test_an_entry_that_was_used_since_it_was_chosen_stays(opened: CacheDirectory) -> None:
    victims = chosen(opened, Selection())
    with FileStreamProgramCache(opened.layout.root) as cache:
        assert cache.get("k3")
    gone = evict_selected(opened, victims, None, lambda count: None)
    assert gone.entries == 39
    assert find_entry(opened.layout, entry_name(b"k3")) is not None


def test_entries_of_a_busy_shard_are_tried_again(opened: CacheDirectory) -> None:
    victims = chosen(opened, Selection())
    other = CacheDirectory(opened.layout.root, 5.0)
    busy = other.locks[int(victims[0].name[:2], 16)]
    busy.acquire(5.0)
    held = threading.Event()

    def release(count: int) -> None:
        busy.release()
        held.set()

    gone = evict_selected(opened, victims, None, release)
    assert held.is_set()
    assert gone.entries == 40


def test_nothing_that_is_not_known_is_taken_for_something(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"plain"
    layout = CacheDirectory(str(cache_path), 5.0).layout
    now_ns = time.time_ns()
    assert list(select_entries(layout, Selection(arch=("sm_*",)), now_ns)) == []
    assert len(list(select_entries(layout, Selection(arch=("unknown",)), now_ns))) == 1


def test_an_eviction_that_is_told_to_stop_leaves_the_rest_and_exact_accounting(opened: CacheDirectory) -> None:
    asked: list[bool] = []

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) > 5

    gone = evict_selected(opened, chosen(opened, Selection()), None, lambda count: None, should_stop)
    assert 0 < gone.entries < 40
    assert opened.usage().total() == ((40 - gone.entries) * 100, 40 - gone.entries)
    assert recount_all(opened) == []
