# SPDX-License-Identifier: Apache-2.0
"""Promoting: what a directory adds to a bundle, what it leaves out, and when it leaves the bundle alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import BundleProgramCache, FileStreamProgramCache
from lockcache.bundle import Promoted, promote, promoting
from lockcache.bundle.gathering import Gatherer
from lockcache.errors import ArchiveError, LockTimeoutError
from lockcache.filestream import turn_to_replace
from lockcache.filestream.disk.layout import Layout, entry_name
from tests.unit.bundle.bundles import bundle_of, write


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "kernels.lcb", bundle_of({b"a": b"a" * 5000}))


@pytest.fixture
def node(tmp_path: Path) -> Layout:
    with FileStreamProgramCache(tmp_path / "node") as cache:
        cache[b"new"] = b"n" * 5000
    return Layout(str(tmp_path / "node"))


def _put(layout: Layout, key: bytes, content: bytes) -> None:
    """Put like cuda.core does, which leaves no record."""
    path = Path(layout.entry(entry_name(key)))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def _identity(bundle: Path) -> tuple[int, int, int]:
    """Returns what a replaced or changed file differs in. Not when it was read."""
    status = bundle.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def test_entries_without_a_record_are_left_out_and_counted(bundle: Path, node: Layout) -> None:
    _put(node, b"foreign", b"of cuda.core")
    assert promote(node, str(bundle)) == Promoted(promoted=1, entries=2, too_old=0, damaged=0, unverified=1)
    with BundleProgramCache(bundle) as reopened:
        assert reopened.get(b"foreign") is None


@pytest.mark.parametrize("what, damaged, unverified", [("foreign", 0, 1), ("damaged", 1, 0)])
def test_nobody_takes_a_turn_for_what_is_left_out_anyway(
    bundle: Path, node: Layout, what: str, damaged: int, unverified: int
) -> None:
    promote(node, str(bundle))
    if what == "foreign":
        _put(node, b"foreign", b"of cuda.core")
    else:
        with FileStreamProgramCache(node.root) as cache:
            cache[b"damaged"] = b"d" * 5000
        path = Path(node.entry(entry_name(b"damaged")))
        with open(path, "r+b") as file:
            file.write(b"x")
    before = _identity(bundle)
    with turn_to_replace(str(bundle), 0.0):
        found = promote(node, str(bundle), wait_seconds=0.0)
    assert found == Promoted(promoted=0, entries=2, too_old=0, damaged=damaged, unverified=unverified)
    assert _identity(bundle) == before


def test_an_entry_that_is_evicted_meanwhile_is_not_damaged(
    bundle: Path, node: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = promoting.Merge

    def evict_first(*arguments: object) -> object:
        os.unlink(node.entry(entry_name(b"new")))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(promoting, "Merge", evict_first)
    assert promote(node, str(bundle)) == Promoted(promoted=0, entries=1, too_old=0, damaged=0, unverified=0)


def test_what_the_bundle_lost_while_its_turn_was_waited_for_is_added(
    bundle: Path, node: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared again in its turn, with all that the directory has."""
    with FileStreamProgramCache(node.root) as cache:
        cache[b"a"] = b"a" * 5000
    _meanwhile(monkeypatch, lambda: write(bundle, bundle_of({b"b": b"b"})))
    assert promote(node, str(bundle)).promoted == 2
    with BundleProgramCache(bundle) as reopened:
        assert all(reopened.get(key) for key in (b"a", b"b", b"new"))


def _meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Have something happen while the turn is waited for."""

    def take_after(*arguments: object) -> object:
        work()
        return turn_to_replace(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(promoting, "turn_to_replace", take_after)


def test_a_bundle_that_another_host_replaced_in_this_turn_stays(
    bundle: Path, node: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = promoting.Merge

    def replace_first(*arguments: object) -> object:
        write(bundle, bundle_of({b"theirs": b"theirs"}))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(promoting, "Merge", replace_first)
    with pytest.raises(LockTimeoutError, match="replaced meanwhile"):
        promote(node, str(bundle))
    with BundleProgramCache(bundle) as reopened:
        assert (len(reopened), reopened[b"theirs"]) == (1, b"theirs")


def test_one_that_must_not_shrink_stays_and_is_named(bundle: Path, node: Layout) -> None:
    before = bundle.read_bytes()
    with pytest.raises(ArchiveError, match=r"bundle merge --max-size"):
        promote(node, str(bundle), 4000, may_shrink=False)
    assert bundle.read_bytes() == before
    assert promote(node, str(bundle), 10**6, may_shrink=False).entries == 2
    assert promote(node, str(bundle), 7000).too_old == 1


def test_each_new_entry_is_read_three_times_and_no_other(
    bundle: Path, node: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileStreamProgramCache(node.root) as cache:
        cache[b"a"] = b"a" * 5000
    loaded: list[str] = []
    real = Gatherer.load

    def count(gatherer: Gatherer, found: object) -> object:
        loaded.append(found.name)  # type: ignore[attr-defined]
        return real(gatherer, found)  # type: ignore[arg-type]

    monkeypatch.setattr(Gatherer, "load", count)
    promote(node, str(bundle))
    assert loaded == [entry_name(b"new")] * 3
