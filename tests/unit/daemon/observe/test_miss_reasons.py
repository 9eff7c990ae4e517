"""Misses are counted by what makes their keys differ: each once, at a bounded cost, under a bounded number of names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.disk.layout import Layout
from lockcache_daemon.observe import miss_reasons
from lockcache_daemon.observe.miss_reasons import GONE, NOTHING_LIKE_IT, OTHER, MissReasons, reason_of
from tests.unit.bundle.bundles import made_of
from tests.unit.material import entry_path

PARTS = {"compiler": "nvrtc 13.5", "option arch": "sm_90", "define N": "4", "source": "kernel"}


def compiled(path: Path, *changes: dict[str, str], key: str = "") -> None:
    """A program that stores kernels whose keys are made so, one after the other, and ends."""
    with FileStreamProgramCache(path) as cache:
        for changed in changes:
            parts = {**PARTS, **changed}
            raw = (key or repr(sorted(parts.items()))).encode()
            state(raw, parts, "kernel")
            cache[raw] = b"code"


@pytest.fixture
def reasons(cache_path: Path) -> MissReasons:
    compiled(cache_path, {})
    found = MissReasons(Layout(str(cache_path)), 1.0, 0.5)
    found._throttle.change(1e9, 0.5)  # as if time passed between ticks
    return found


def looked(reasons: MissReasons) -> dict[str, int]:
    """Returns the counts once all that was reported by now is compared."""
    reasons._look_due = 0.0
    reasons.tick()
    while reasons._waiting:
        reasons.tick()
    return reasons.counts


def test_misses_from_before_the_daemons_time_do_not_count(reasons: MissReasons) -> None:
    assert looked(reasons) == {}


def test_each_miss_counts_once_for_each_part_that_differs_from_the_nearest(
    reasons: MissReasons, cache_path: Path
) -> None:
    compiled(cache_path, {"option arch": "sm_100"})
    assert looked(reasons) == {"option arch": 1}
    assert looked(reasons) == {"option arch": 1}, "seen once"
    compiled(cache_path, {"compiler": "nvrtc 13.6", "define N": "5"})
    assert looked(reasons) == {"option arch": 1, "compiler": 1, "define": 1}


def test_a_new_program_and_one_that_was_evicted_have_reasons_of_their_own(
    reasons: MissReasons, cache_path: Path
) -> None:
    alien = {"compiler": "other", "option arch": "none", "define N": "0", "source": "another"}
    compiled(cache_path, alien, key="alien")
    assert looked(reasons) == {NOTHING_LIKE_IT: 1}
    with FileStreamProgramCache(cache_path) as cache:
        del cache["alien"]
    compiled(cache_path, alien, key="alien")
    assert looked(reasons) == {NOTHING_LIKE_IT: 1, GONE: 1}


def test_an_entry_that_lost_its_record_was_stored_before(reasons: MissReasons, cache_path: Path) -> None:
    os.removexattr(entry_path(cache_path, repr(sorted(PARTS.items())).encode()), "user.lockcache")
    compiled(cache_path, {})
    assert looked(reasons) == {GONE: 1}


def test_a_miss_is_compared_with_the_entries_of_a_seed(reasons: MissReasons, cache_path: Path, tmp_path: Path) -> None:
    compiled(tmp_path / "filled", {"compiler": "nvrtc 13.6", "define N": "5"})
    made_of(tmp_path / "filled", tmp_path / "seed.lcb")
    FileStreamProgramCache(cache_path, seed=tmp_path / "seed.lcb").close()
    compiled(cache_path, {"compiler": "nvrtc 13.6", "define N": "6"})
    assert looked(reasons) == {"define": 1}
    os.truncate(cache_path / "lockcache" / "seed.lcb", 100)
    compiled(cache_path, {"compiler": "nvrtc 13.6", "option arch": "sm_100"})
    assert looked(reasons) == {"define": 2, "option arch": 1}, "as without a seed"


def test_what_was_stored_after_a_miss_is_no_reason_for_it_however_near(reasons: MissReasons, cache_path: Path) -> None:
    missed = {"compiler": "nvrtc 13.6", "define N": "5"}
    compiled(cache_path, missed, *({**missed, "source": f"{number}"} for number in range(4)))
    found = looked(reasons)
    assert (found["compiler"], found["define"]) == (1, 1), "of the first one"
    assert found["source"] == 4


def test_a_pass_goes_on_over_many_ticks(
    reasons: MissReasons, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(miss_reasons, "_SLICE_SECONDS", 0.0)
    compiled(cache_path, *({"source": f"{number}"} for number in range(20)))
    ticks = 0
    reasons._look_due = 0.0
    reasons.tick()
    while reasons._waiting:
        reasons.tick()
        ticks += 1
    assert ticks >= 20, "one entry a tick"
    assert reasons.counts == {"source": 16}, "of the misses of one report, those that it keeps"


def test_programs_cannot_make_more_reasons_than_there_is_room_for(reasons: MissReasons, cache_path: Path) -> None:
    for number in range(50):
        compiled(cache_path, {f"option {number}": "on"})
        looked(reasons)
    assert len(reasons.counts) <= miss_reasons._MOST_REASONS + 1
    assert reasons.counts[OTHER] >= 5


@pytest.mark.parametrize(
    "part, reason",
    [
        ("header /usr/include/a.h", "header"),
        ("define N", "define"),
        ("option arch", "option arch"),
        ("compiler", "compiler"),
        ("working directory", "working directory"),
        ("include path", "include path"),
    ],
)
def test_what_each_program_has_of_its_own_is_counted_by_kind(part: str, reason: str) -> None:
    assert reason_of(part) == reason
