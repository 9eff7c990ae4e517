# SPDX-License-Identifier: Apache-2.0
"""Recording: which lookups of a process are listed, when, and what it costs."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream import turn_to_replace
from lockcache.filestream.disk import entry_name
from lockcache.remote.manifest import read_manifest, recorder, recorder_of

_FORK = multiprocessing.get_context("fork")
_SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    path, recorders = str(tmp_path / "job.manifest"), dict[str, recorder.Recorder]()
    monkeypatch.setenv("LOCKCACHE_MANIFEST", path)
    monkeypatch.setattr(recorder, "_recorders", recorders)
    yield path
    for each in recorders.values():
        each.keys.clear()  # its folder is gone when this process ends


def _names(*keys: str) -> set[str]:
    return {entry_name(key.encode()) for key in keys}


def _listed(manifest: str) -> frozenset[str]:
    recorder_of(manifest).report_patiently()
    return read_manifest(manifest)


@pytest.mark.parametrize("arguments", [{}, {"compile_once": True}, {"read_only": True}])
def test_each_way_to_look_up_is_listed(arguments: dict[str, bool], manifest: str, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "c") as filling:
        filling["hit"] = filling["entry"] = b"v"
        filling.put_files("files", {"a": b"v"})
    with FileStreamProgramCache(tmp_path / "c", **arguments) as cache:
        assert cache.get("hit") == cache["hit"] == b"v"
        assert cache.get("missing") is None
        assert cache.get("without a turn", turn=False) is None
        assert cache.get_entry("entry") is not None
        cache.get_or_compute("computed", lambda: b"v")
        cache.view_files("files")
        cache["stored"] = b"v"
    assert _listed(manifest) == _names("hit", "missing", "without a turn", "entry", "computed", "files")


def test_what_is_compiled_again_is_listed(manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    with FileStreamProgramCache(tmp_path / "c") as cache:
        assert cache.get("missing") is None
        cache.get_or_compute("computed", lambda: b"v")
    assert _listed(manifest) == _names("missing", "computed")


def test_without_the_variable_and_where_caches_are_off_nothing_is_recorded(
    manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_DISABLE", "1")
    FileStreamProgramCache(tmp_path / "c").get("k")
    monkeypatch.delenv("LOCKCACHE_DISABLE")
    monkeypatch.delenv("LOCKCACHE_MANIFEST")
    FileStreamProgramCache(tmp_path / "c").get("k")
    assert recorder._recorders == {}
    program = (
        "import sys, lockcache; lockcache.FileStreamProgramCache(sys.argv[1]).get('k'); "
        "print('lockcache.remote.manifest' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program, str(tmp_path)], text=True) == "False\n"


def _look_up(path: str, rank: int) -> None:
    FileStreamProgramCache(path).get(f"of {rank}")


@pytest.mark.parametrize("context", [_FORK, _SPAWN], ids=["fork", "spawn"])
def test_processes_that_end_at_once_list_all_that_they_looked_up(
    context: multiprocessing.context.BaseContext, manifest: str, tmp_path: Path
) -> None:
    cache = FileStreamProgramCache(tmp_path / "c")
    cache.get("of the parent")
    workers = [context.Process(target=_look_up, args=(str(tmp_path / "c"), rank)) for rank in range(4)]  # type: ignore[attr-defined]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert _listed(manifest) == _names("of the parent", *(f"of {rank}" for rank in range(4)))


LOOK_UP = "import sys; from lockcache import *; cache = FileStreamProgramCache(sys.argv[1]); cache.get('k')"


def test_a_program_that_just_ends_has_listed_its_keys(manifest: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LOOK_UP, str(tmp_path / "c")], check=True)
    assert read_manifest(manifest) == _names("k")


def test_a_program_that_runs_on_lists_its_keys_with_a_put_now_and_then(
    manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileStreamProgramCache(tmp_path / "c") as cache:
        cache.get("k")
        cache.stats()
        assert not os.path.exists(manifest), "not with each report"
        recorder_of(manifest)._due = 0.0
        cache.stats()
    assert read_manifest(manifest) == _names("k")


def test_what_is_not_a_manifest_is_one_warning_and_stays(
    manifest: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path(manifest).write_text("my only copy\n")
    with FileStreamProgramCache(tmp_path / "c") as cache:
        cache.get("k")
    with caplog.at_level(logging.WARNING, "lockcache"):
        for _ in range(2):
            recorder_of(manifest).report_patiently()
    assert caplog.text.count("line 1: this is not a manifest") == 1
    assert Path(manifest).read_text() == "my only copy\n"


def test_more_lookups_than_a_manifest_lists_take_no_more_memory(
    manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST_KEYS", 3)
    with FileStreamProgramCache(tmp_path / "c") as cache:
        for number in range(9):
            cache.get(f"k{number}")
    assert len(recorder_of(manifest).keys) == 3


def test_a_report_of_counters_waits_for_nobody_who_is_at_the_file(
    manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    real = recorder.add_to_manifest

    def add(path: str, keys: frozenset[str], wait_seconds: float) -> frozenset[str]:
        waits.append(wait_seconds)
        return real(path, keys, wait_seconds)

    monkeypatch.setattr(recorder, "add_to_manifest", add)
    with FileStreamProgramCache(tmp_path / "c") as cache:
        cache.get("k")
    recording = recorder_of(manifest)
    with turn_to_replace(manifest, 0.0):  # of another process, which is stopped
        recording._due = 0.0
        recording.report()
        assert not os.path.exists(manifest)
        recording.report()
    assert waits == [0.0], "and it is not tried at each put"
    assert "LOCKCACHE_MANIFEST" not in caplog.text
    assert _listed(manifest) == _names("k")
    assert waits[-1] > 0, "at the end it waits"
