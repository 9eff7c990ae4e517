# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.judge.operations import OPEN, Kind, Recorder, Value, load_histories
from lockcache_stress.judge.removals import Watch

NAME = hashlib.sha256(b"k").digest()


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(str(tmp_path), "w0")
    yield recorder
    recorder.close()


@pytest.fixture
def watch(recorder):
    watch = Watch(recorder)
    yield watch
    watch.close()


def kinds(folder, key=0):
    return [each.kind for each in load_histories(str(folder)).get(key, [])]


def test_an_operation_is_as_it_ended_and_one_that_never_ended_stays_open(tmp_path, recorder):
    begun = recorder.begin(Kind.READ, NAME, 0)
    recorder.end(begun, Kind.HIT, NAME, 0, Value(3, 4))
    recorder.begin(Kind.PUT, NAME, 0, Value(1, 2))
    recorder.begin(Kind.READ, NAME, 0)
    read, written = load_histories(str(tmp_path))[0]
    assert (read.kind, read.value, read.process) == (Kind.HIT, Value(3, 4), "w0")
    assert read.begin_ns <= read.end_ns < OPEN
    assert (written.kind, written.value, written.is_open) == (Kind.PUT, Value(1, 2), True)


def test_what_a_killed_process_had_begun_is_in_the_history(tmp_path):
    code = (
        "import os, signal, sys; from lockcache_stress.judge.operations import Kind, Recorder, Value\n"
        "recorder = Recorder(sys.argv[1], 'w5')\n"
        "recorder.begin(Kind.PUT, bytes(32), 0, Value(5, 1)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [(each.kind, each.is_open) for each in load_histories(str(tmp_path))[0]] == [(Kind.PUT, True)]


class _InterruptError(BaseException):
    pass


def _interrupt(number, frame):
    raise _InterruptError


@pytest.fixture
def interrupted_unlink(monkeypatch):
    """A signal arrives while the system call is under way: its handler runs when the file is gone."""
    unlink = os.unlink

    def unlink_and_be_interrupted(path):
        unlink(path)
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(os, "unlink", unlink_and_be_interrupted)
    previous = signal.signal(signal.SIGUSR1, _interrupt)
    yield
    signal.signal(signal.SIGUSR1, previous)


def test_a_removal_that_a_signal_interrupts_may_have_taken_effect(tmp_path, recorder, interrupted_unlink, watch):
    path = tmp_path / "entries" / NAME.hex()[:2] / NAME.hex()[2:]
    path.parent.mkdir(parents=True)
    path.touch()
    recorder.end(recorder.begin(Kind.READ, NAME, 0), Kind.MISS, NAME, 0)
    with pytest.raises(_InterruptError):
        os.unlink(path)
    _, removed = load_histories(str(tmp_path))[0]
    assert (path.exists(), removed.kind, removed.is_open) == (False, Kind.REMOVED, True)


@pytest.mark.parametrize("record_files", [False, True])
def test_evictions_and_clear_are_removals_of_the_keys_that_they_take(tmp_path, recorder, watch, record_files):
    cache = FileStreamProgramCache(tmp_path / "cache", max_size_bytes=2500, record_files=record_files)
    for key in range(4):
        name = hashlib.sha256(b"%d" % key).digest()
        begun = recorder.begin(Kind.PUT, name, key, Value(1, key + 1))
        cache[b"%d" % key] = bytes(1000)
        recorder.end(begun, Kind.PUT, name, key, Value(1, key + 1))
    evicted = [key for key in range(4) if cache.get(b"%d" % key) is None]
    assert evicted
    for key in range(4):
        assert kinds(tmp_path, key) == [Kind.PUT] + [Kind.REMOVED] * (key in evicted)
    cache.clear()
    assert all(kinds(tmp_path, key) == [Kind.PUT, Kind.REMOVED] for key in range(4))


def test_a_write_that_the_cache_gave_up_is_seen(tmp_path, watch):
    cache = FileStreamProgramCache(tmp_path / "cache", max_size_bytes=1000)
    cache["k"] = bytes(10)
    assert not watch.was_dropped
    cache["k"] = bytes(2000)
    assert watch.was_dropped
