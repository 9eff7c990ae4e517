# SPDX-License-Identifier: Apache-2.0
"""The search of a model: every state that can be reached, what must hold in each, and that all can end from each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any, Final

from lockcache_stress.model.protocol import DEATH, PROGRAMS, Model, State


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
        return {"programs": list(self.model.programs), "cap": self.model.cap, "fault": self.model.fault,
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
            found.wrong.setdefault(wrong, _way(before, state))
        for number, name, after in following:
            if after not in before:
                before[after] = state, number, name
                left.append(after)
    found.states = len(before)
    stuck = _cannot_end(followers)
    if stuck is not None:
        found.wrong.setdefault("a process waits for ever", _way(before, stuck))
    return found


def wrong_in(model: Model, state: State, *, is_last: bool) -> Iterator[str]:
    """Yields what is wrong in a state."""
    living = [process for process in state.processes if not process.is_dead]
    if state.page < state.disk:
        yield "the page says too little"
    lowering = any(each in ("policy",) for each in model.programs)
    is_lowered = lowering and all(
        process.at == "done" for process, each in zip(state.processes, model.programs, strict=True) if each == "policy"
    )
    cap = state.cap if is_lowered or not lowering else model.cap
    if state.disk > cap:
        yield "over the cap"
    if -1 in state.entries:
        yield "an entry without its bytes"
    may_compute_again = len(living) < len(state.processes) or {"remove", "policy"} & {*model.programs}
    if state.computed > 1 and not may_compute_again and model.cap > sum(map(bool, model.entries)) + 1:
        yield "computed twice"
    if is_last:
        if any(process.at != "done" for process in living):
            yield "a process waits for ever"
        elif len(living) == len(state.processes) and state.page != state.disk:
            yield "nobody died, and the page is wrong"
    for number, process in enumerate(state.processes):
        if process.at == "lost" and not process.is_dead:
            yield f"what process {number} had staged was removed"


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


#: Every two programs, and three with a daemon that recounts.
MODELS: Final = [
    *(Model(pair, cap, entries) for pair in combinations_with_replacement(PROGRAMS, 2)
      for cap, entries in ((3, (0, 0)), (3, (1, 0)), (2, (1, 1)))),
    Model(("put", "put other", "recount"), 2, (1, 0)),
    Model(("put", "remove", "recount"), 2, (1, 0)),
    Model(("put other", "policy", "recount"), 2, (1, 0)),
    Model(("lease", "lease", "recount"), 3, (0, 0)),
    Model(("lease", "lease", "lease"), 3, (0, 0)),
]  # fmt: skip
#: The models that have to find each fault.
PLANTED: Final = {
    "rename-first": Model(("put", "remove")),
    "no-reservation": Model(("put", "put other")),
    "no-lock-in-publish": Model(("put", "remove"), 3, (1, 0)),
    "slot-without-lock": Model(("put", "remove"), 3, (1, 0)),
    "lease-back-first": Model(("lease", "lease"), 3),
    "credited-twice": Model(("put", "put"), 3, (1, 0)),
    "no-owner-check": Model(("put", "recount")),
    "policy-once": Model(("put", "policy"), 2, (0, 1)),
    "sum-first": Model(("put", "put other"), 1),
    "count-without-lock": Model(("put", "recount")),
    "lease-kept": Model(("lease", "lease", "remove"), 3),
}
