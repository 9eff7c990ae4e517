# SPDX-License-Identifier: Apache-2.0
"""Whose cap is in force while a keeper runs, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import StatedPolicy
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.policy import Policy
from tests.daemon.directories import bytes_on_disk, fill
from tests.daemon.keepers import CAP, Kept
from tests.state_pages import damage, policy_of, set_policy
from tests.unit.bundle.bundles import bundle_of, write


def test_a_program_does_not_replace_the_cap_and_an_operator_does(
    cache_path: Path, keep: Callable[[Path], Kept]
) -> None:
    kept = keep(cache_path)
    with FileStreamProgramCache(cache_path, max_size_bytes=10) as cache:
        assert cache.max_size_bytes == CAP
        directory = CacheDirectory(str(cache_path), 1.0)
        directory.policy.replace(Policy(500_000, by_operator=True))
        fill(cache_path, 60, 10_000)
        kept.keeper.tick()
        assert cache.max_size_bytes == 500_000
        directory.close()
    assert [said["max_size_bytes"] for said in kept.said("cap")] == [500_000]
    assert bytes_on_disk(cache_path) <= 450_000


@pytest.mark.parametrize(
    "change, why",
    [
        (damage, "taken away or lost"),
        (partial(set_policy, policy=Policy(7)), "a program"),
        (partial(set_policy, policy=Policy()), "taken away or lost"),
    ],
    ids=["damaged", "a program's", "none"],
)
def test_a_policy_that_is_not_an_operators_is_set_anew_and_the_log_says_why(
    cache_path: Path, keep: Callable[[Path], Kept], change: Callable[[Path], None], why: str
) -> None:
    kept = keep(cache_path)
    change(cache_path)
    kept.keeper.tick()
    assert policy_of(cache_path) == Policy(CAP, by_operator=True)
    (said,) = kept.said("cap")
    assert said["max_size_bytes"] == CAP
    assert why in said["restored"]


def test_a_seed_that_is_too_large_for_the_cap_goes_before_it_and_takes_no_entry_with_it(
    cache_path: Path, tmp_path: Path, keep: Callable[[Path], Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write(tmp_path / "large.lcb", bundle_of({b"seeded": bytes(CAP * 6 // 10)}))
    cache = FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=2 * CAP)
    cache.update({b"own %d" % number: bytes(CAP // 10) for number in range(5)})
    replace = StatedPolicy.replace

    def replace_and_write(file: StatedPolicy, policy: Policy) -> None:
        replace(file, policy)
        cache[b"one more"] = b"code"

    monkeypatch.setattr(StatedPolicy, "replace", replace_and_write)
    keep(cache_path).keeper.tick()
    assert cache.max_size_bytes == CAP
    assert (len(cache), cache.stats().evictions) == (6, 0)
