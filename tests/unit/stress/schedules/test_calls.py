# SPDX-License-Identifier: Apache-2.0
"""Calls that commute: those on different objects, and those that only look."""

from __future__ import annotations

import pytest

from lockcache_stress.schedules.calls import Call, Seen, accesses, conflict, read_call


def of(name: str, *paths: str, low: int = 0, high: int = 1 << 62, makes: bool = False, room: bool = False):
    return accesses(Call(name, paths, low, high, makes), counts_room=room)


@pytest.mark.parametrize(
    "one, other",
    [
        (of("open", "entries/ab/cd"), of("open", "entries/ab/cd")),
        (of("pwrite", "lockcache/state", low=0, high=16), of("pwrite", "lockcache/state", low=16, high=32)),
        (of("utime", "entries/ab/cd"), of("read", "entries/ab/cd")),
        (of("write", "tmp/a"), of("write", "tmp/b")),
        (of("rename", "tmp/a", "entries/ab/cd"), of("scandir", "entries/ef")),
        (of("close", "entries/ab/cd"), of("unlink", "entries/ab/cd")),
        # A list of names alone, and a file's bytes; which page it is, and what stands there.
        (of("write", "tmp/a"), of("listdir", "tmp")),
        (of("lstat", "lockcache/state"), of("pwrite", "lockcache/state", low=0, high=16)),
        # Of two writes under a cap, the most is on disk behind both; and what has no room is not counted.
        (of("write", "tmp/a", room=True), of("write", "tmp/b", room=True)),
        (of("write", "lockcache/locks/room.bell", room=True), of("unlink", "tmp/b", room=True)),
    ],
)
def test_they_commute(one, other):
    assert not conflict(one, other)


@pytest.mark.parametrize(
    "one, other",
    [
        (of("open", "entries/ab/cd"), of("rename", "tmp/a", "entries/ab/cd")),
        # A name and its folder's list.
        (of("rename", "tmp/a", "entries/ab/cd"), of("scandir", "entries/ab")),
        (of("utime", "entries/ab/cd"), of("scandir", "entries/ab")),
        (of("open", "tmp/a", makes=True), of("listdir", "tmp")),
        # A folder, and what is in it.
        (of("mkdir", "entries/ab"), of("open", "entries/ab/cd")),
        # The page, and a slot of it.
        (of("pread", "lockcache/state", low=0, high=8192), of("pwrite", "lockcache/state", low=4096, high=4112)),
        (of("lock_descriptor", "lockcache/locks/ab"), of("unlock_descriptor", "lockcache/locks/ab")),
        (of("utime", "entries/ab/cd"), of("lstat", "entries/ab/cd")),
        # What takes room, and what frees some, where the sum of bytes has a cap.
        (of("write", "tmp/a", room=True), of("unlink", "tmp/b", room=True)),
    ],
)
def test_they_do_not_commute(one, other):
    assert conflict(one, other)
    assert conflict(other, one)


def test_a_call_meets_only_calls_of_other_processes():
    seen = Seen()
    seen.add(0, of("rename", "tmp/a", "entries/ab/cd"))
    assert not seen.meets_other(0, of("open", "entries/ab/cd"))
    assert seen.meets_other(1, of("open", "entries/ab/cd"))
    before = seen.version
    seen.add(0, of("rename", "tmp/a", "entries/ab/cd"))
    assert seen.version == before


def test_a_staged_file_is_named_by_its_process():
    path = "/root/tmp/ab.4096.0123456789abcdef.77.1234.0"
    call = read_call(("call", "unlink", 0, 1, False, (path,)), "/root", {77: 1})
    assert call.paths == ("tmp/ab.4096.p1.0",)
    assert str(call) == "unlink(tmp/ab.4096.p1.0)"
