# SPDX-License-Identifier: Apache-2.0
"""lockcache.integrations.pyptx next to pyptx: each reads what the other wrote, and what may be no entry is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from lockcache.integrations.pyptx import CacheEntry, CacheKey, CubinCache
from tests.unit.integrations.pyptx_format import (
    ENTRY,
    KEY,
    NAME,
    PTX,
    age,
    elf,
    empty,
    file,
    folder,
    garbage,
    link,
    needs_pyptx,
    pipe,
    read_entry,
    write_entry,
)


def test_the_stand_in_for_pyptx_reads_what_we_write(cache: CubinCache, directory: Path) -> None:
    cache.put(ENTRY)
    plain = {"smem": 49152, "cluster": [2, [1, 1]], "blob": str(b"\xff")}
    newlines = PTX.replace("\r\n", "\n").replace("\r", "\n")  # it does that when it reads
    assert read_entry(directory, NAME) == (newlines, ENTRY.cubin_bytes, plain)


@needs_pyptx
@pytest.mark.parametrize("cubin", [b"cubin", None])
def test_the_installed_pyptx_reads_what_we_write_and_the_reverse(
    cache: CubinCache, directory: Path, cubin: bytes | None
) -> None:
    import pyptx.cache as upstream

    ours = CacheEntry(KEY, "ptx\n", cubin, {"a": [1]})
    cache.put(ours)
    found = upstream.CubinCache(directory).get(upstream.CacheKey(*vars(KEY).values()))
    assert (found.ptx_source, found.cubin_bytes, found.metadata) == ("ptx\n", cubin, {"a": [1]})
    key = upstream.CacheKey("theirs", (("x", (1, 2)),), (((1,), "f32"),), "sm_80")
    upstream.CubinCache(directory).put(upstream.CacheEntry(key, "theirs\r\n", cubin, {"b": [2]}))
    mine = CacheKey(*vars(key).values())
    assert CubinCache(directory).get(mine) == CacheEntry(mine, "theirs\r\n", cubin, {"b": [2]})


@needs_pyptx
def test_the_stand_in_for_pyptx_writes_what_the_installed_one_does(tmp_path: Path) -> None:
    import pyptx.cache as upstream

    entry = CacheEntry(KEY, PTX, b"cubin", {"a": (1,), "p": PurePosixPath("/")})
    (tmp_path / "ours").mkdir()
    write_entry(tmp_path / "ours", entry)
    key = upstream.CacheKey(*vars(KEY).values())
    upstream.CubinCache(tmp_path / "theirs").put(upstream.CacheEntry(key, PTX, b"cubin", entry.metadata))
    files = [{each.name: each.read_bytes() for each in (tmp_path / side).iterdir()} for side in ("ours", "theirs")]
    assert files[0] == files[1]


THEIRS = CacheEntry(KEY, "theirs\r\n", b"cubin", {"a": [1, {"b": None}]})


@pytest.mark.parametrize("cubin", [b"cubin", None, elf()])
def test_an_entry_that_pyptx_wrote_is_served_and_counted_as_unverified(
    foreign: Path, fresh: Callable[[], CubinCache], cubin: bytes | None
) -> None:
    entry = replace(THEIRS, cubin_bytes=cubin)
    write_entry(foreign, entry)
    cache = fresh()
    assert cache.get(KEY) == entry
    assert (cache.stats().hits, cache.stats().unverified_hits, len(cache)) == (1, 1, 1)


def test_a_json_file_of_pyptx_for_another_key_is_a_miss(foreign: Path, fresh: Callable[[], CubinCache]) -> None:
    write_entry(foreign, THEIRS)
    other = replace(KEY, arch="sm_80")
    for suffix in ("ptx", "cubin", "json"):
        file(foreign, suffix).rename(file(foreign, suffix, other.hash()))
    assert fresh().get(other) is None


@pytest.mark.parametrize("suffix", ["ptx", "cubin"])
def test_a_json_file_of_pyptx_that_is_older_than_the_rest_is_a_miss(
    foreign: Path, fresh: Callable[[], CubinCache], suffix: str
) -> None:
    """A writer that was killed: its PTX, and the json of the one before."""
    write_entry(foreign, THEIRS)
    for each in ("ptx", "cubin", "json"):
        if each != suffix:
            age(file(foreign, each), 10)
    assert fresh().get(KEY) is None


def test_a_cubin_of_pyptx_that_is_older_than_its_ptx_is_not_served_with_it(
    foreign: Path, fresh: Callable[[], CubinCache]
) -> None:
    """pyptx leaves it there when it stores PTX alone."""
    write_entry(foreign, THEIRS)
    age(file(foreign, "cubin"), 10)
    write_entry(foreign, CacheEntry(KEY, "new", None))
    assert fresh().get(KEY) == CacheEntry(KEY, "new", None)


@pytest.mark.parametrize("suffix", ["json", "ptx", "cubin"])
@pytest.mark.parametrize("damage", [empty, garbage, link, pipe, folder])
def test_a_damaged_file_of_pyptx_is_a_miss_or_goes_without_and_no_exception(
    foreign: Path, fresh: Callable[[], CubinCache], suffix: str, damage: Callable[[Path], None]
) -> None:
    write_entry(foreign, THEIRS)
    damage(file(foreign, suffix))
    found = fresh().get(KEY)
    assert found is None or (suffix == "cubin" and damage in (garbage, link, pipe, folder))
    assert found is None or damage is garbage or found.cubin_bytes is None


@pytest.mark.parametrize(
    "sidecar", ["[]", "null", "5", '"x"', "{}", '{"key": 5}', '{"key": {}, "metadata": 5}', "[" * 100_000]
)
def test_a_json_file_that_is_no_pyptx_entry_is_a_miss(
    foreign: Path, fresh: Callable[[], CubinCache], sidecar: str
) -> None:
    write_entry(foreign, THEIRS)
    file(foreign, "json").write_text(sidecar)
    assert fresh().get(KEY) is None


@pytest.mark.parametrize("missing_bytes", [1, 64, 300])
def test_a_cubin_of_pyptx_whose_end_is_missing_is_a_miss(
    foreign: Path, fresh: Callable[[], CubinCache], missing_bytes: int
) -> None:
    write_entry(foreign, replace(THEIRS, cubin_bytes=elf(missing_bytes=missing_bytes)))
    assert fresh().get(KEY) is None


def test_what_pyptx_writes_over_an_entry_of_ours_is_read_anew(cache: CubinCache, directory: Path) -> None:
    cache.put(ENTRY)
    assert cache.get(KEY) is ENTRY
    write_entry(directory, THEIRS)
    assert cache.get(KEY) == THEIRS
    write_entry(directory, replace(THEIRS, ptx_source="again", cubin_bytes=b"again"))  # the same json
    assert cache.get(KEY) == replace(THEIRS, ptx_source="again", cubin_bytes=b"again")


def test_ptx_that_pyptx_puts_over_an_entry_of_ours_before_it_dies_is_a_miss(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache]
) -> None:
    cache.put(ENTRY)
    file(directory, "ptx").write_text("theirs")
    assert fresh().get(KEY) is None


@pytest.mark.parametrize("suffix", ["json", "ptx", "cubin"])
def test_a_file_that_became_a_hole_of_a_terabyte_is_a_miss(cache: CubinCache, directory: Path, suffix: str) -> None:
    cache.put(ENTRY)
    os.truncate(directory / f"{NAME}.{suffix}", 1 << 40)
    assert CubinCache(directory).get(KEY) is None
    cache.put(ENTRY)
    assert cache.get(KEY) == ENTRY
