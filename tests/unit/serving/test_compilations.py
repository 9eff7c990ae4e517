# SPDX-License-Identifier: Apache-2.0
"""Reports of compilations: the program, the part of the key that differs, seconds, callers; and what is kept."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockcache
from lockcache import FileStreamProgramCache, SealedError
from lockcache.composition import missed
from lockcache.explain import state
from lockcache.filestream.disk import entry_name
from lockcache.remote.manifest import read_manifest, recorder
from tests.serving_support import logging_all, reports, unsealed_process
from tests.unit.bundle.bundles import bundle_of, write


@pytest.fixture(autouse=True)
def not_sealed(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    recorders = dict[str, recorder.Recorder]()
    monkeypatch.setattr(recorder, "_recorders", recorders)
    logging_all(caplog)
    with unsealed_process():
        yield
    for each in recorders.values():
        each.keys.clear()


@pytest.fixture
def cache(cache_path: Path) -> FileStreamProgramCache:
    return FileStreamProgramCache(cache_path)


def key_of(arch: str, tile: int) -> bytes:
    key = f"gemm {arch} {tile}".encode()
    state(key, {"code": "gemm", "arch": arch, "tile": tile}, label="gemm")
    return key


def compiled() -> bytes:
    return b"code"


def test_the_part_that_differs_is_named(cache: FileStreamProgramCache, caplog: Any) -> None:
    cache.get_or_compute(key_of("sm_90", 64), compiled)
    lockcache.seal()
    cache.get_or_compute(key_of("sm_90", 128), compiled)
    [record] = [record for record in caplog.records if hasattr(record, "compilation")]
    name, near = entry_name(b"gemm sm_90 128"), entry_name(b"gemm sm_90 64")
    assert record.levelno == logging.WARNING
    assert "\n" not in record.getMessage()
    assert record.compilation["name"] == name
    assert record.compilation["why"] == f"differs from gemm ({near[:12]}) in tile: 128 / 64"
    assert record.getMessage().startswith(f"compiled while sealed: gemm ({name[:12]}), 0.0")
    assert f" s: differs from gemm ({near[:12]}) in tile: 128 / 64; called by {__file__}:" in record.getMessage()


def test_a_refusal_says_it_too_and_looks_once(
    cache: FileStreamProgramCache, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.get_or_compute(key_of("sm_90", 64), compiled)
    lockcache.seal("error")
    key = key_of("sm_100", 64)
    with pytest.raises(SealedError, match="in arch: sm_100 / sm_90") as raised:
        cache.get_or_compute(key, compiled)
    assert raised.value.name == entry_name(key)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.name) == (str(raised.value), raised.value.name)
    monkeypatch.setattr(missed, "Search", None)  # a program that asks again with each request pays no search
    with pytest.raises(SealedError, match="in arch: sm_100 / sm_90"):
        cache.get_or_compute(key, compiled)
    levels = [record.levelno for record in caplog.records if "sealed" in record.getMessage()]
    assert levels == [logging.WARNING, logging.DEBUG]


def test_log_is_no_warning(cache: FileStreamProgramCache, caplog: Any) -> None:
    lockcache.seal("log")
    cache.get_or_compute("k", compiled)
    assert [record.levelno for record in caplog.records if hasattr(record, "compilation")] == [logging.INFO]


def test_what_cannot_be_compared_is_said(cache: FileStreamProgramCache, caplog: Any) -> None:
    lockcache.seal()
    cache.get_or_compute("plain", compiled)
    cache.get_or_compute(key_of("sm_90", 64), compiled)
    assert [report["why"] for report in reports(caplog)] == [
        "its key does not say what it was made of",
        "nothing like it is stored (2 entries compared)",
    ]


def test_an_entry_that_was_there_and_damaged_is_the_reason(cache: FileStreamProgramCache, caplog: Any) -> None:
    cache.get_or_compute(key_of("sm_90", 64), lambda: b"code" * 100)
    path = Path(cache._directory.layout.entry(entry_name(b"gemm sm_90 64")))
    path.write_bytes(b"x" + path.read_bytes()[1:])
    lockcache.seal()
    assert cache.get_or_compute(key_of("sm_90", 64), lambda: b"code" * 100) == b"code" * 100
    assert [report["why"] for report in reports(caplog)] == ["its entry was there and damaged"]


def test_no_more_is_compared_than_is_bearable(
    cache: FileStreamProgramCache, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tile in range(10):
        cache[f"other {tile}"] = b"code"
    monkeypatch.setattr(missed, "_MOST_LOOKED_AT", 4)
    lockcache.seal()
    cache.get_or_compute(key_of("sm_90", 64), compiled)
    assert [report["why"] for report in reports(caplog)] == ["nothing like it is stored (4 entries compared)"]


def test_what_terminals_obey_is_escaped(cache: FileStreamProgramCache, caplog: Any) -> None:
    lockcache.seal()
    cache.get_or_compute(b"k", compiled, label="gemm\x1b[2J\nlockcache: all is well")
    [line] = [record.getMessage() for record in caplog.records if hasattr(record, "compilation")]
    assert line.isprintable()


def test_the_callers_are_bounded_and_none_is_lockcaches(cache: FileStreamProgramCache, caplog: Any) -> None:
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            cache.get_or_compute("k", compiled)

    lockcache.seal()
    deep(50)
    [report] = reports(caplog)
    callers = report["callers"].split(" < ")
    assert callers[-1] == "..."
    assert len(callers) == 17
    assert all(caller.endswith(" in deep") for caller in callers[:-1])


def test_a_lookup_that_obliges_to_store_is_refused_before_it_compiles(cache_path: Path, caplog: Any) -> None:
    with FileStreamProgramCache(cache_path, compile_once=True) as cache:
        lockcache.seal()
        assert cache.get("k") is None
        assert reports(caplog) == []
        cache["k"] = b"code"
        [report] = reports(caplog)
        assert report["seconds"] > 0, "since the look-up"
        lockcache.seal("error")
        assert cache.get("k") == b"code"
        for look in (cache.get, cache.get_entry, cache.__getitem__):
            with pytest.raises(SealedError):
                look("other")
        assert cache.get("other", turn=False) is None
    lockcache.unseal()
    with FileStreamProgramCache(cache_path, compile_once=True, lease_timeout_seconds=60) as another:
        assert another.get("other") is None, "nobody has its turn any more"


def test_a_store_whose_turn_was_granted_before_the_seal_is_reported_and_not_refused(
    cache_path: Path, caplog: Any
) -> None:
    with FileStreamProgramCache(cache_path, compile_once=True) as cache:
        assert cache.get("k") is None
        lockcache.seal("error")
        cache["k"] = b"code"
        with lockcache.unsealed():
            assert cache.get("l") is None
        cache["l"] = b"code"
    assert [report["label"] for report in reports(caplog)] == ["k", "l"]


def test_what_was_missed_is_listed_at_once(cache: FileStreamProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "missed.manifest"
    cache["hit"] = b"code"
    lockcache.seal(misses=path)
    cache.get("hit")
    cache.get("only looked up")
    cache.get_or_compute("hit", compiled)
    assert not path.exists()
    cache.get_or_compute("a", compiled)
    assert read_manifest(str(path)) == {entry_name(b"a")}
    cache["b"] = b"code"
    lockcache.seal("error", misses=path)
    with pytest.raises(SealedError):
        cache.get_or_compute("c", compiled)
    assert read_manifest(str(path)) == {entry_name(each) for each in (b"a", b"b", b"c")}


def test_a_list_that_cannot_be_written_fails_nobody(cache: FileStreamProgramCache, tmp_path: Path, caplog: Any) -> None:
    lockcache.seal(misses=tmp_path / "not there" / "missed.manifest")
    assert cache.get_or_compute("a", compiled) == b"code"
    assert cache.get_or_compute("b", compiled) == b"code"
    warnings = [each.getMessage() for each in caplog.records if "manifest of what was missed" in each.getMessage()]
    assert len(warnings) >= 1
    assert "No such file" in warnings[0]
    assert sum(each.levelno == logging.WARNING for each in caplog.records if "No such file" in each.getMessage()) == 1


def test_a_directory_that_is_only_read_and_a_bundle_are_reported_once(
    cache_path: Path, tmp_path: Path, caplog: Any
) -> None:
    FileStreamProgramCache(cache_path).close()
    bundle = tmp_path / "kernels.lcb"
    write(bundle, bundle_of({b"k": b"code"}))
    lockcache.seal()
    for cache in (FileStreamProgramCache(cache_path, read_only=True), lockcache.BundleProgramCache(bundle)):
        assert cache.get_or_compute("other", compiled, label="gemm") == b"code"
        assert [(report["label"], report["name"]) for report in reports(caplog)] == [("gemm", entry_name(b"other"))]
