# SPDX-License-Identifier: Apache-2.0
"""Rounds: cuts a long run into rounds, each a whole run in itself, and joins their findings into one outcome.

Every operation of every round is recorded and judged, so that an hour is judged as completely as a second. The memory
and time for a history grow with its operations, and the length of a round bounds both. Rounds share only a directory
that the user named, and objects that are expensive to make; the seeds of rounds are drawn from the run's seed, so that
the replay line of the run replays all rounds.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lockcache.errors import LockcacheError
from lockcache_stress.errors import UnusableError
from lockcache_stress.judge import Judged
from lockcache_stress.run.counters import LARGEST
from lockcache_stress.run.outcome import Check, Outcome
from lockcache_stress.run.sampler import Peaks

#: The longest round. An operation takes 130 bytes on disk, and its judgement takes 450 bytes of memory and 15 us of a
#: core: at 10,000 operations a second a round takes 80 MB, 270 MB and 9 s.
ROUND_SECONDS: Final = 60.0

#: Called with the progress: the name of a stage, the share of it that is done, and a few words.
Show = Callable[[str, float, str], None]

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Round:
    """One part of a run."""

    #: The number of the round, from 1.
    number: int
    #: The number of rounds.
    of: int
    seconds: float
    seed: int

    @property
    def folder(self) -> str:
        """The name of the round's folder; the names sort in the order of the rounds."""
        return f"round-{self.number:0{len(str(self.of))}}"


def cut(seconds: float, seed: int, longest_seconds: float) -> list[Round]:
    """Returns rounds of equal length. The first has the run's own seed, so that a run of one round is that round."""
    count = max(1, math.ceil(seconds / longest_seconds))
    digests = (hashlib.blake2b(f"{seed}/round/{each}".encode(), digest_size=4).digest() for each in range(2, count + 1))
    seeds = [seed, *(int.from_bytes(digest, "big") >> 1 for digest in digests)]
    return [Round(number, count, seconds / count, each) for number, each in enumerate(seeds, 1)]


def run_rounds(
    rounds: Sequence[Round],
    run_one: Callable[[Round, Show], Outcome],
    show: Show,
    *,
    fail_fast: bool,
    begun: Callable[[Outcome], object] = lambda outcome: None,
) -> Outcome:
    """Run rounds one after the other; with ``fail_fast`` none after the first with a finding.

    A round that cannot be run, after another could, fails and ends the run, but the findings until then are reported.
    ``begun`` gets the outcome after the first of several rounds, for a run that is interrupted; the outcomes of the
    other rounds are added to it.
    """
    if len(rounds) == 1:
        return run_one(rounds[0], show)
    together: Rounds | None = None
    for each in rounds:
        try:
            outcome = run_one(each, _shown_within(each, show))
        except (UnusableError, LockcacheError, OSError) as error:
            if together is None:
                raise
            together.findings.append({"round": each.number, "error": f"round {each.number} could not be run: {error}"})
            break
        if together is None:
            together = Rounds(replace(outcome.plan, seconds=each.of * each.seconds), planned=each.of)
            begun(together)
        together.add(each, outcome)
        if fail_fast and not outcome.ok:
            break
    if together is None:
        raise ValueError("a run has at least one round")
    return together


def _shown_within(each: Round, show: Show) -> Show:
    """Returns a function that shows the progress of one round as its part of the run."""

    def shown(stage: str, share: float, words: str) -> None:
        show(stage, (each.number - 1 + min(share, 1.0)) / each.of, f"round {each.number} of {each.of}: {words}")

    return shown


@dataclass
class _Line:
    """One check in all rounds."""

    worst: Check
    round: int
    #: Whether the value differs between rounds.
    varies: bool = False

    def add(self, check: Check, number: int) -> None:
        self.varies |= check.value != self.worst.value
        if _badness(check) > _badness(self.worst):
            self.worst, self.round = check, number

    def text(self, total: Check | None) -> str:
        """Returns the worst value of a round, after the value of all rounds together, if both differ."""
        where = f"{self.worst.value}, round {self.round}" if self.varies else self.worst.value
        return where if total is None or total.value == self.worst.value else f"{total.value}; worst {where}"


def _badness(check: Check) -> tuple[bool, bool, float]:
    """Returns a key by which worse checks sort later: failures last, and else by the distance from the good side."""
    found = _NUMBER.search(check.value)
    number = float(found[0].replace(",", "")) if found else 0.0
    return not check.ok, bool(check.must), -number if check.must.startswith(">") else abs(number)


@dataclass
class Rounds(Outcome):
    """The outcome of all rounds of a run. ``plan`` is that of the first round, with the length of all together."""

    planned: int = 0
    lines: dict[str, _Line] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{super().title}, {len(self.rounds)} rounds"

    def checks(self) -> list[Check]:
        """Returns the checks as of one run. A check holds if it does in every round, and shows the worst value."""
        totals = {check.name: check for check in super().checks()}
        done = len(self.rounds)
        lines = [Check("rounds", f"{done} of {self.planned}", str(self.planned), done == self.planned)]
        for name in dict.fromkeys([*totals, *self.lines]):
            line, total = self.lines.get(name), totals.get(name)
            if total is not None and (line is None or not line.worst.must):
                lines.append(total)
            elif line is not None:
                lines.append(replace(line.worst, value=line.text(total)))
        return lines

    def add(self, each: Round, outcome: Outcome) -> None:
        """Add a round's outcome, of which nothing else is needed afterwards."""
        checks = outcome.checks()
        for check in checks:
            self.lines.setdefault(check.name, _Line(check, each.number)).add(check, each.number)
        self.rounds.append(_as_json(each, outcome, [check.name for check in checks if not check.ok]))
        for name, count in outcome.totals.items():
            mine = self.totals.get(name, 0)
            self.totals[name] = max(mine, count) if name in LARGEST else mine + count
        self.gets.merge(outcome.gets)
        self.puts.merge(outcome.puts)
        self.kills += outcome.kills
        self.deaths += [f"round {each.number}: {death}" for death in outcome.deaths]
        _add_peaks(self.peaks, outcome.peaks, self.seconds)
        self.seconds += outcome.seconds
        self.daemon = _daemons(self.daemon, outcome.daemon)
        self.working_set_bytes = outcome.working_set_bytes
        self._add_findings(each, outcome)

    def _add_findings(self, each: Round, outcome: Outcome) -> None:
        found = [_of_round(each, finding) for finding in outcome.findings]
        if outcome.histories is not None and _add_histories(self, each, outcome.histories):
            self.findings.insert(0, found.pop(0))  # the drawing of this history, before those of larger ones
        self.findings += found


def _as_json(each: Round, outcome: Outcome, failed: list[str]) -> dict[str, Any]:
    counts = {name: outcome.totals[name] for name in ("operations", "hits", "puts")}
    return {
        "round": each.number,
        "seed": each.seed,
        "ok": not failed,
        "failed_checks": failed,
        "seconds": round(outcome.seconds, 3),
        **counts,
        "kills": outcome.kills,
        "histories": outcome.histories and outcome.histories.as_json(),
    }


def _of_round(each: Round, finding: dict[str, Any]) -> dict[str, Any]:
    said = {"error": f"round {each.number}: {finding['error']}"} if "error" in finding else {}
    return {"round": each.number, **finding, **said}


def _add_histories(together: Outcome, each: Round, judged: Judged) -> bool:
    """Add a round's histories. Returns whether the round has the smallest illegal history so far."""
    if together.histories is None:
        together.histories = Judged()
    mine = together.histories
    mine.operations += judged.operations
    mine.ok += judged.ok
    mine.illegal += judged.illegal
    mine.unknown += judged.unknown
    for key, count in judged.removals.items():
        mine.removals[key] = mine.removals.get(key, 0) + count
    if judged.smallest is None:
        return False
    if mine.smallest is not None and len(mine.smallest[1].operations) <= len(judged.smallest[1].operations):
        return False
    mine.smallest, mine.smallest_in = judged.smallest, f"round {each.number}"
    return True


def _add_peaks(mine: Peaks, other: Peaks, began_seconds: float) -> None:
    """Add a round's peaks to the highest so far, and its samples after those of earlier rounds."""
    mine.samples += other.samples
    mine.disk_bytes = max(mine.disk_bytes, other.disk_bytes)
    mine.unaccounted_bytes = max(mine.unaccounted_bytes, other.unaccounted_bytes)
    mine.final_bytes = max(mine.final_bytes, other.final_bytes)
    if other.statvfs_bytes is not None:
        mine.statvfs_bytes = max(mine.statvfs_bytes or 0, other.statvfs_bytes)
    mine.begins_seconds.append(began_seconds)
    for one, added in ((mine.disk, other.disk), (mine.accounted, other.accounted), (mine.statvfs, other.statvfs)):
        for seconds, count_bytes in added.points():
            one.add(began_seconds + seconds, count_bytes)


def _daemons(mine: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    if mine is None or other is None:
        return mine or other
    together = {name: mine[name] + other[name] for name in ("sweeps", "evicted_entries", "evicted_bytes", "complaints")}
    ended = mine["ended_when_asked"] and other["ended_when_asked"]
    return {**together, "exit_code": mine["exit_code"] or other["exit_code"], "ended_when_asked": ended}
