# SPDX-License-Identifier: Apache-2.0
"""Runs of real processes as traces of the model: which model an experiment is, and which step each call."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from lockcache.filestream.accounting import decode_head
from lockcache.lowlevel import entry_name
from lockcache_stress.model import DEATH, END, NO_STEPS, OPEN, STEPS, Disk, Follower, Model, Program, Slot, Step
from lockcache_stress.schedules.calls import Call
from lockcache_stress.schedules.directory import Workplace
from lockcache_stress.schedules.operations import FAR, FARTHER, KEY, NEAR, NEW, SPACE
from lockcache_stress.schedules.running import Looked, Ran

_KEYS: Final = (KEY, NEW, *NEAR, FAR, FARTHER)
_NAMES: Final = {entry_name(key): number for number, key in enumerate(_KEYS)}
_USED: Final = sorted({int(name[:2], 16) for name in _NAMES})
_SHARDS: Final = tuple(_USED.index(int(entry_name(key)[:2], 16)) for key in _KEYS)
#: The program of the model that each operation is. Records of their own, a page that is replaced, and a directory that
#: is made are not in the model.
PROGRAMS: Final = {
    "put": Program("put"),
    "replace": Program("put"),
    "get": Program("get"),
    "evict": Program("put", _KEYS.index(NEW)),
    "put-new": Program("put", _KEYS.index(NEW)),
    "narrow": Program("policy"),
    "remove": Program("remove"),
    "recount": Program("recount"),
    "reap": Program("reap"),
    "lease": Program("lease"),
    "give-up": Program("give-up"),
    "attach": Program("attach"),
    "policy": Program("policy"),
    "put-far": Program("put", _KEYS.index(FARTHER)),
    "put-alone": Program("put", _KEYS.index(FARTHER)),
    "tidy": Program("hold", _KEYS.index(FARTHER)),
    "slow-lease": Program("lease"),
    "stepped": Program("recount"),
}
NOT_A_RUN: Final = "not a run of the model"
# More than any of these directories holds.
_NO_CAP: Final = 99
_SLOTS_AT: Final = 4096
_SHARDS_ON_PAGE: Final = 256
_SLOT: Final = struct.Struct("<qq")
_STAGED: Final = re.compile(r"tmp/([0-9a-f]{2})\.[0-9]+\.p([0-9]|dead)\.[0-9a-f]+")
_OF_ENTRY: Final = re.compile(r"entries/([0-9a-f]{2})/([0-9a-f]{62})")
_LOCK: Final = re.compile(r"lockcache/locks/([0-9a-f]{2})")
_SHARD, _NAME = re.compile(r"/[0-9a-f]{2}$"), re.compile(r"/[0-9a-f]{64}(\.0$)?")


def model_of(place: Workplace, names: Sequence[str]) -> Model | None:
    """Returns the model that an experiment is; ``None`` if the model has not all of it."""
    begin = place.begin
    if begin.is_missing or begin.has_record_files or not all(name in PROGRAMS for name in names):
        return None
    others = () if begin.is_bare else (*NEAR, FAR)
    entries = tuple(int(key in others or (key == KEY and begin.has_older)) for key in _KEYS)
    programs = [PROGRAMS[name] for name in names]
    if begin.has_dead:
        programs.append(Program("dead", _KEYS.index(NEW)))
    cap = _NO_CAP if place.cap is None else place.cap // SPACE.block_bytes
    return Model(tuple(programs), cap, entries, _SHARDS, deaths=len(names))


class Traced:
    """Compares the runs of one experiment with its model."""

    def __init__(self, place: Workplace, names: Sequence[str]) -> None:
        #: The model; ``None`` if there is none of these operations, or of that directory.
        self.model = model_of(place, names)
        self._follower = None if self.model is None else Follower(self.model)
        #: So many runs were compared.
        self.compared = 0

    def judge(self, ran: Ran) -> list[str]:
        """Returns why a run is not one of the model; nothing if it is, or there is no model."""
        if self.model is None or self._follower is None:
            return []
        self.compared += not ran.is_cut
        try:
            trace = trace_of(ran, len(self.model.programs))
        except LookupError as error:
            return [f"{NOT_A_RUN}: it has no call {error}"]
        broken, states = self._follower.follow(trace)
        # One for each call: behind the last call of a process comes its end.
        ran.model_states = [
            states[at] for at in range(len(states)) if at + 1 == len(trace) or trace[at + 1].name != END
        ]
        return [] if broken is None else [f"{NOT_A_RUN}: {broken.why}, at {broken.at} of the trace"]


def trace_of(ran: Ran, processes: int) -> list[Step]:
    """Returns what processes did as steps. Raises :class:`LookupError` for a call that no table of the model has."""
    pids = {process.pid: process.number for process in ran.processes}
    last = {number: at for at, (number, _, _) in enumerate(ran.calls)}
    trace = []
    for at, (number, call, _) in enumerate(ran.calls):
        looked = ran.looked.get(at)
        disk = None if looked is None else disk_of(looked, pids, processes)
        is_dead = ran.processes[number].is_dead and at == last[number]
        if is_dead:
            trace.append(Step(number, DEATH, disk=disk))
            continue
        name, on, may_be_none = _step_of(call, ran.outcomes.get(at, ""), processes)
        trace.append(Step(number, name, on, may_be_none, disk))
        if at == last[number] and ran.processes[number].is_over:
            trace.append(Step(number, END))
    return trace


@lru_cache(maxsize=4096)
def _step_of(call: Call | None, outcome: str, processes: int) -> tuple[str, int, bool]:
    if call is None:
        return "", 0, True  # a sleep
    kind, on = _kind(call, processes)
    found = STEPS.get((call.name, kind))
    if outcome and (found is None or found[0] != OPEN):
        return "", 0, True  # a call that failed, or a lock that was refused
    if found is not None:
        return found[0], on, found[1]
    if (call.name, kind if call.changes else "") in NO_STEPS:
        return "", 0, True
    raise LookupError(f"{call.name}({kind})")


def _kind(call: Call, processes: int) -> tuple[str, int]:
    """Returns the kind of file that a call is on, and the shard, key or process."""
    path, new = call.paths[0], ", new" * call.makes
    if path == "lockcache/state":
        return _part_of_page(call)
    if match := _LOCK.fullmatch(path):
        return f"locks/SHARD{new}", _USED.index(int(match[1], 16))
    if match := _STAGED.fullmatch(path):
        owner = processes - 1 if match[2] == "dead" else int(match[2])
        return f"tmp/STAGED{new}", _key_at(call.paths[1]) if call.name == "rename" else owner
    if _OF_ENTRY.fullmatch(path):
        return "entries/SHARD/NAME", _key_at(path)
    return _NAME.sub("/NAME", _SHARD.sub("/SHARD", path)).removeprefix("lockcache/") + new, 0


def _part_of_page(call: Call) -> tuple[str, int]:
    """Returns what a call is on of the state page: each write is of one part of it."""
    if call.name != "pwrite":
        return "state", 0
    if call.low < _SLOTS_AT:
        return "state, head", 0
    shard = (call.low - _SLOTS_AT) // _SLOT.size
    return ("state, SHARD", _USED.index(shard)) if shard < _SHARDS_ON_PAGE else ("state, tables", 0)


def _key_at(path: str) -> int:
    match = _OF_ENTRY.fullmatch(path)
    return -1 if match is None else _NAMES.get(match[1] + match[2], -1)


def _slot_of(image: bytes, shard: int) -> Slot:
    bytes_, entries = _SLOT.unpack_from(image, _SLOTS_AT + shard * _SLOT.size)
    return Slot(-(-bytes_ // SPACE.block_bytes), entries)


def disk_of(looked: Looked, pids: Mapping[int, int], processes: int) -> Disk:
    """Returns what the model has of a directory."""
    entries, staged = [0] * len(_KEYS), [0] * processes
    for path, size in looked.files.items():
        if path.startswith("tmp/"):
            owner = pids.get(int(os.path.basename(path).split(".")[3]), processes - 1)
            staged[owner] = 1 + bool(size)
        elif path.startswith("entries/"):
            entries[_NAMES["".join(path.split("/")[1:])]] = 1 if size else -1
    return Disk(*_on_page(looked.image), tuple(entries), tuple(staged))


@lru_cache(maxsize=256)
def _on_page(image: bytes) -> tuple[tuple[Slot, ...], int]:
    head = decode_head(image)
    cap = None if head is None else head.policy.max_size_bytes
    page = tuple(_slot_of(image, shard) for shard in _USED)
    return page, _NO_CAP if cap is None else cap // SPACE.block_bytes
