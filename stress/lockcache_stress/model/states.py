# SPDX-License-Identifier: Apache-2.0
"""The search of a model: every state that can be reached, what must hold in each, and that all can end from each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any, Final

from lockcache_stress.model.parts import DEATH, Program, State
from lockcache_stress.model.protocol import Model


@dataclass
class Searched:
    """What was found in one model."""

    model: Model
    states: int = 0
    steps: int = 0
    #: What is wrong, with the shortest run that leads there: (process, step).
    wrong: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"programs": [*map(str, self.model.programs)], "cap": self.model.cap, "fault": self.model.fault,
                "states": self.states, "steps": self.steps, "wrong": self.wrong}  # fmt: skip


def search(model: Model) -> Searched:
    """Reach every state."""
    found, first = Searched(model), model.first()
    before: dict[State, tuple[State, int, str] | None] = {first: None}
    followers: dict[State, list[State]] = {}
    left = deque([first])
    while left:
        state = left.popleft()
        following = list(model.steps(state))
        followers[state] = [after for _, name, after in following if name != DEATH]
        found.steps += len(following)
        for wrong in wrong_in(model, state, is_last=not followers[state]):
            if wrong not in found.wrong:
                found.wrong[wrong] = _way(before, state)
        for number, name, after in following:
            if after not in before:
                before[after] = state, number, name
                left.append(after)
    found.states = len(before)
    stuck = _cannot_end(followers)
    if stuck is not None and "a process waits for ever" not in found.wrong:
        found.wrong["a process waits for ever"] = _way(before, stuck)
    return found


def wrong_in(model: Model, state: State, *, is_last: bool) -> Iterator[str]:
    """Yields what is wrong in a state."""
    living = [process for process in state.processes if not process.is_dead]
    kinds = [program.kind for program in model.programs]
    have_died = model.deaths - state.deaths_left
    if any(slot.blocks < held for slot, held in zip(state.page, _disk_by_shard(model, state), strict=True)):
        yield "the page says too little"
    lowering = [process.at == "done" for process, kind in zip(state.processes, kinds, strict=True) if kind == "policy"]
    if state.disk > (model.cap if lowering and not all(lowering) else state.cap):
        yield "over the cap"
    if -1 in state.entries:
        yield "an entry without its bytes"
    may_compute_again = have_died or {"remove", "policy", "give-up"} & {*kinds}
    if state.computed > 1 and not may_compute_again and model.cap > sum(map(bool, model.entries)) + 1:
        yield "computed twice"
    if is_last:
        if any(process.at != "done" for process in living):
            yield "a process waits for ever"
        elif len(living) == len(state.processes) and (state.accounted, sum(slot.entries for slot in state.page)) != (
            state.disk,
            sum(map(bool, state.entries)),
        ):
            yield "nobody died, and the page is wrong"
    for number, process in enumerate(state.processes):
        if process.then == "lost" and not process.is_dead:
            yield f"what process {number} had staged was removed"


def _disk_by_shard(model: Model, state: State) -> list[int]:
    held = [0] * len(state.page)
    for key, entry in enumerate(state.entries):
        held[model.shards[key]] += bool(entry)
    for number, size in enumerate(state.staged):
        held[model.shard(number)] += size == 2
    return held


def _cannot_end(followers: dict[State, list[State]]) -> State | None:
    """Returns a state from which no end is reached without deaths; ``None`` if there is none."""
    leads_to: dict[State, list[State]] = {}
    for state, afters in followers.items():
        for after in afters:
            leads_to.setdefault(after, []).append(state)
    ends = [state for state, afters in followers.items() if not afters]
    reached, left = set(ends), deque(ends)
    while left:
        for state in leads_to.get(left.popleft(), ()):
            if state not in reached:
                reached.add(state)
                left.append(state)
    return next((state for state in followers if state not in reached), None)


def _way(before: dict[State, tuple[State, int, str] | None], state: State) -> list[tuple[int, str]]:
    way = []
    while (step := before[state]) is not None:
        state, number, name = step
        way.append((number, name))
    return way[::-1]


def _model(*programs: str, **more: Any) -> Model:
    return Model(tuple(_PROGRAMS[each] for each in programs), **more)


_PROGRAMS: Final = {
    **{kind: Program(kind) for kind in ("put", "lease", "give-up", "remove", "recount", "policy", "dead")},
    "put other": Program("put", 1),
}
_OFTEN: Final = ("put", "put other", "lease", "give-up", "remove", "recount", "policy")
#: Every two programs, three with a daemon that recounts, and some in two shards.
MODELS: Final = [
    *(_model(*pair, cap=cap, entries=entries) for pair in combinations_with_replacement(_OFTEN, 2)
      for cap, entries in ((3, (0, 0)), (3, (1, 0)), (2, (1, 1)))),
    _model("put", "put other", "recount", entries=(1, 0)),
    _model("put", "remove", "recount", entries=(1, 0)),
    _model("put other", "policy", "recount", entries=(1, 0)),
    _model("put", "put other", "policy"),
    _model("lease", "lease", "recount", cap=3),
    _model("lease", "lease", "lease", cap=3),
    _model("lease", "lease", "give-up", cap=3),
    *(_model(*pair, entries=(1, 1), shards=(0, 1))
      for pair in (("put", "put other"), ("put other", "policy"), ("remove", "put other"))),
    _model("put", "recount", "dead", cap=3, entries=(0, 1)),
]  # fmt: skip
#: The models that have to find each fault.
PLANTED: Final = {
    "rename-first": _model("put", "remove"),
    "no-reservation": _model("put", "put other"),
    "no-lock-in-publish": _model("put", "remove", cap=3, entries=(1, 0)),
    "slot-without-lock": _model("put", "remove", cap=3, entries=(1, 0)),
    "lease-back-first": _model("lease", "lease", cap=3),
    "credited-twice": _model("put", "put", cap=3, entries=(1, 0)),
    "no-owner-check": _model("put", "recount"),
    "policy-once": _model("put", "policy", entries=(0, 1)),
    "sum-first": _model("put", "put other", cap=1),
    "count-without-lock": _model("put", "recount"),
    "lease-kept": _model("give-up", "lease", cap=3),
}
