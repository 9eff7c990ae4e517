# SPDX-License-Identifier: Apache-2.0
"""The files of lockcache.integrations.pyptx: private, whole or a miss, on disks that fail."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockcache import UnsafeCacheDirError
from lockcache.integrations.pyptx import CacheEntry, CubinCache
from tests.unit.integrations.pyptx_format import (
    ENTRY,
    KEY,
    NAME,
    PTX,
    cut,
    empty,
    file,
    flip,
    folder,
    garbage,
    link,
    pipe,
)


def test_an_entry_is_three_private_files_in_pyptxs_format(cache: CubinCache, directory: Path) -> None:
    cache.put(ENTRY)
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {
        f"{NAME}.cubin": 0o600,
        f"{NAME}.ptx": 0o600,
        f"{NAME}.json": 0o600,
        "lockcache": 0o700,
    }
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert file(directory, "ptx").read_bytes() == PTX.encode()
    assert file(directory, "cubin").read_bytes() == ENTRY.cubin_bytes
    sidecar = json.loads(file(directory, "json").read_text())
    assert sidecar["key"] == {
        "fn_id": "gemm",
        "template_kwargs": [["BM", 128], ["tile", [64, [32, 16]]]],
        "input_shapes": [[[1024, 512], "bfloat16"]],
        "arch": "sm_90a",
    }
    assert sidecar["metadata"] == {"smem": 49152, "cluster": [2, [1, 1]], "blob": str(b"\xff")}


@pytest.mark.parametrize("suffix", ["json", "ptx", "cubin"])
@pytest.mark.parametrize("damage", [flip, cut, empty, garbage, link, pipe, folder, Path.unlink])
def test_a_damaged_file_of_ours_is_a_miss_and_the_next_put_mends_it(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache], suffix: str, damage: Callable[[Path], None]
) -> None:
    cache.put(ENTRY)
    damage(file(directory, suffix))
    reader = fresh()
    assert reader.get(KEY) is None
    assert KEY not in reader
    stats = reader.stats()
    assert (stats.misses, stats.hits) == (2, 0)
    if file(directory, suffix).is_dir():
        file(directory, suffix).rmdir()
    reader.put(ENTRY)
    assert fresh().get(KEY) == ENTRY


@pytest.mark.parametrize("suffix", ["ptx", "cubin", "json"])
def test_a_file_of_another_entry_in_the_place_of_one_is_a_miss(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache], suffix: str
) -> None:
    cache.put(ENTRY)
    other = CacheEntry(replace(KEY, arch="sm_80"), "other", b"other")
    cache.put(other)
    file(directory, suffix, other.key.hash()).rename(file(directory, suffix))
    assert fresh().get(KEY) is None


def test_a_whole_entry_under_another_name_is_a_miss(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache]
) -> None:
    cache.put(ENTRY)
    other = replace(KEY, arch="sm_80")
    for suffix in ("ptx", "cubin", "json"):
        file(directory, suffix).rename(file(directory, suffix, other.hash()))
    assert fresh().get(other) is None


def test_a_cubin_that_somebody_left_beside_an_entry_without_one_is_not_served(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache]
) -> None:
    entry = replace(ENTRY, cubin_bytes=None)
    cache.put(entry)
    file(directory, "cubin").write_bytes(b"stale")
    assert fresh().get(KEY) == entry


def test_a_json_file_of_ours_that_lost_its_digest_is_not_taken_for_one_of_pyptx(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache]
) -> None:
    cache.put(ENTRY)
    sidecar = json.loads(file(directory, "json").read_text())
    del sidecar["lockcache_digest"]
    file(directory, "json").write_text(json.dumps(sidecar))
    assert fresh().get(KEY) is None


@pytest.mark.parametrize(
    "mode, advice", [(0o777, "chmod -R go-w"), (0o770, "chmod -R go-w"), (0o1777, "a folder of your own")]
)
def test_a_directory_that_others_may_write_is_refused(directory: Path, mode: int, advice: str) -> None:
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(UnsafeCacheDirError, match=advice):
        CubinCache(directory)


def test_a_put_replaces_a_symbolic_link_and_does_not_write_through_it(
    cache: CubinCache, directory: Path, tmp_path: Path, fresh: Callable[[], CubinCache]
) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    for suffix in ("ptx", "cubin", "json"):
        file(directory, suffix).symlink_to(target)
    cache.put(ENTRY)
    assert target.read_text() == "precious"
    assert fresh().get(KEY) == ENTRY


@pytest.mark.root
def test_on_a_full_disk_a_put_stays_in_memory_and_the_older_entry_is_gone_for_others(
    mount_tmpfs: Callable[..., Path],
) -> None:
    root = mount_tmpfs("size=1m")
    cache = CubinCache(root / "pyptx")
    cache.put(ENTRY)
    newer = replace(ENTRY, cubin_bytes=os.urandom(2 << 20))
    cache.put(newer)
    assert cache.get(KEY) is newer
    assert CubinCache(root / "pyptx").get(KEY) is None
    assert cache.stats().dropped_writes == 1
    assert list((root / "pyptx" / "lockcache" / "staged").iterdir()) == []
    cache.put(ENTRY)
    assert CubinCache(root / "pyptx").get(KEY) == ENTRY


def test_ptx_that_no_text_file_can_hold_stays_in_memory(cache: CubinCache, fresh: Callable[[], CubinCache]) -> None:
    cache.put(ENTRY)
    odd = replace(ENTRY, ptx_source="\ud800")
    cache.put(odd)
    assert cache.get(KEY) is odd
    assert (fresh().get(KEY), cache.stats().dropped_writes) == (None, 1)
