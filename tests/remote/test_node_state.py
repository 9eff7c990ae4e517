"""State that the processes of a node share of a server: marks, stamps, their lock and their folder."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream import backing
from lockcache.filestream.disk import Layout, ProcessLock, entry_name
from lockcache.filestream.remote import NodeSeen, make_server_folder, node_state, parse_url
from lockcache.filestream.remote.node_state import SeenHere
from tests.remote.servers import Valkey

_NAMES = [entry_name(b"%d" % number) for number in range(200)]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    FileStreamProgramCache(tmp_path).close()
    return make_server_folder(Layout(str(tmp_path)), parse_url("redis://127.0.0.1"))


def _seen(folder: str) -> NodeSeen:
    return NodeSeen(Layout(folder.partition("/lockcache/")[0]), folder)


def _leave_marks(folder: str) -> list[str]:
    """Leave the marks of many processes, each of which wrote a few."""
    for name in _NAMES:
        Path(folder, "unsent", name).write_text("1")
    return _NAMES


def test_many_marks_of_many_processes_become_one_number_when_the_next_one_opens(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "_MOST_MARKS", 100)
    _leave_marks(folder)
    seen = _seen(folder)
    assert os.listdir(f"{folder}/unsent") == []
    assert seen.floor_ns("ab" * 32) > 1
    assert _seen(folder).floor_ns("ab" * 32) > 1, "for all processes"


def test_processes_that_write_a_few_count_the_marks_now_and_then(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_state, "_MOST_MARKS", 100)
    monkeypatch.setattr(random, "randrange", lambda most: most - 1)
    seen = _seen(folder)
    _leave_marks(folder)
    seen.mark(_NAMES[0])
    assert os.listdir(f"{folder}/unsent") == []


def test_marks_stay_where_the_number_for_all_cannot_be_written(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_state, "_MOST_MARKS", 100)
    _leave_marks(folder)
    os.mkdir(f"{folder}/floor")
    assert _seen(folder).floor_ns(_NAMES[0]) > 2**63
    assert len(os.listdir(f"{folder}/unsent")) == len(_NAMES)


@pytest.fixture
def is_held(folder: str) -> Iterator[None]:
    """Another process has the lock of the marks, and is stopped."""
    program = "import sys; from lockcache.filestream.disk import ProcessLock; lock = ProcessLock(sys.argv[1], 9.0)"
    program += "; lock.acquire(9.0); print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", program, f"{folder}/lock"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.kill()


@pytest.mark.usefixtures("is_held")
def test_a_stopped_holder_of_the_lock_is_waited_for_once_and_writes_are_marked_all_the_same(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []
    hold = ProcessLock.hold
    monkeypatch.setattr(ProcessLock, "hold", lambda lock, seconds: waits.append(seconds) or hold(lock, seconds))
    seen, other = _seen(folder), _seen(folder)
    marks = [seen.mark(name) for name in _NAMES[:5]]
    assert waits == [node_state._LOCK_SECONDS]
    assert all(marks)
    assert other.floor_ns(_NAMES[4]) > 2**63
    assert seen.unmark(_NAMES[4], marks[4]), "as far as its caller needs to know"
    assert other.floor_ns(_NAMES[4]) > 2**63, "nothing is taken away without the lock"
    monkeypatch.setattr(node_state, "_BETWEEN_WAITS_SECONDS", 0.0)
    seen._waits_again_at = 0.0
    seen.mark(_NAMES[0])
    assert len(waits) == 2


def test_stamps_are_written_on_a_disk_on_which_nothing_can_be_made(folder: str) -> None:
    seen = _seen(folder)
    before = seen.stamps()
    assert len(before.content) == os.stat(f"{folder}/stamps").st_blocks * 512 == 32_768
    os.rmdir(f"{folder}/unsent")
    assert seen.mark(_NAMES[0]) == 0
    after = seen.stamps()
    changed = [at for at in range(0, 32_768, 4) if before.content[at : at + 4] != after.content[at : at + 4]]
    assert len(changed) == 1
    assert before.of(_NAMES[0]) != after.of(_NAMES[0])


def test_servers_that_differ_in_a_setting_share_nothing_and_no_name_is_made_of_a_secret(tmp_path: Path) -> None:
    def name_of(url: str) -> str:
        return os.path.basename(node_state.server_folder(Layout(str(tmp_path)), parse_url(url)))

    assert name_of("redis://h?db=1") != name_of("redis://h?db=2") != name_of("redis://h")
    s3 = "s3://bucket?endpoint=http://%s&access_key_id=%s&secret_access_key=%s"
    assert name_of(s3 % ("one", "a", "b")) != name_of(s3 % ("other", "a", "b"))
    assert name_of(s3 % ("one", "a", "b")) == name_of(s3 % ("one", "c", "d")), "a key that was rotated"
    assert name_of("redis://me:one@h") == name_of("redis://you:other@h") == name_of("redis://h?password=third")
    assert name_of("redis://h?ttl=5") == name_of("redis://h")


def test_of_two_threads_that_note_a_time_the_later_time_stays() -> None:
    seen = SeenHere()
    other = threading.Thread(target=seen.note, args=("k", 7))

    class Interrupted(dict[str, int]):
        def get(self, name: str, default: int = 0) -> int:  # type: ignore[override]
            known = super().get(name, default)
            if other.ident is None:
                other.start()
                other.join(0.2)  # it gets no further while this thread is in the midst of it
            return known

    seen._floors = Interrupted()
    seen.note("k", 5)
    other.join()
    assert seen.floor_ns("k") == 7


def test_two_threads_that_open_at_once_have_one_server(
    tmp_path: Path, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)
    together = threading.Barrier(2)

    class Late(backing.Backing):
        def __init__(self, *arguments: object) -> None:
            together.wait(30)
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(backing, "Backing", Late)
    opened: list[FileStreamProgramCache] = []
    threads = [threading.Thread(target=lambda: opened.append(FileStreamProgramCache(tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened[0]._backing is not None
    assert opened[0]._backing is opened[1]._backing
    for cache in opened:
        cache.close()
