"""Robustness: damaged entries, and two scenarios as measurements, each as one number to compare.

Entries are damaged on disk, and those that are served all the same are counted. lockcache must serve none; the number
of cuda.core's cache is next to it. Not covered is a file that was replaced by one without a record: it is served like
an entry of cuda.core's own cache, which has no records; a user who may write to the directory could forge a record
anyway.

The scenarios: sixteen writers of large values, and 30 SIGKILLs of writers at random moments.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lockcache_stress.bench.base import VALUE_BYTES, Bar, Bench, Line, shown
from lockcache_stress.bench.peers import CUDA_CORE, LOCKCACHE, Peer, opened
from lockcache_stress.plan import Scenario
from lockcache_stress.run import Options, Outcome, drift_bytes, run_bytes
from lockcache_stress.scenarios import BIG_VALUES, KILL

_Damage = Callable[[str, str, random.Random], object]
_BAR: Final = Bar("<=", 1, " x cap")


def measure_damage(bench: Bench) -> list[Line]:
    """Measure damaged entries: none served, for each kind of damage."""
    logging.getLogger("lockcache").setLevel(logging.ERROR)  # every damaged entry logs a warning, which is expected here
    entries = bench.pick(200, 4)
    lines = []
    for done, (name, damage) in enumerate(_KINDS.items()):
        ours = _served(bench.lockcache_directory("damage"), LOCKCACHE, damage, entries)
        theirs = _served(bench.directory("damage"), CUDA_CORE, damage, entries) if CUDA_CORE.is_installed() else None
        lines.append(
            Line(
                f"damaged entries served: {name}",
                f"{ours} of {entries}",
                theirs=shown(theirs, f"{{}} of {entries}"),
                bar="0",
                ok=ours == 0,
                numbers={"ours": ours, "theirs": theirs, "entries": entries},
            )
        )
        bench.show((done + 1) / len(_KINDS), name)
    return lines


def _served(directory: str, peer: Peer, damage: _Damage, entries: int) -> int:
    rng = random.Random(0)
    keys = [b"damaged-%d" % number for number in range(entries)]
    with opened(peer, directory) as store:
        for key in (*keys, b"other"):
            store.put(key, rng.randbytes(VALUE_BYTES))
        for key in keys:
            damage(_path(directory, key), _path(directory, b"other"), rng)
        return sum(store.get(key) is not None for key in keys)


def _path(directory: str, key: bytes) -> str:
    name = hashlib.sha256(key).hexdigest()
    return os.path.join(directory, "entries", name[:2], name[2:])


def _flip(path: str, other: str, rng: random.Random) -> None:
    with open(path, "r+b") as file:
        place = rng.randrange(os.path.getsize(path))
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


#: Damages to an entry's file, given its path and that of another entry's.
_KINDS: Final[dict[str, _Damage]] = {
    "one bit flipped": _flip,
    "cut to half": lambda path, other, rng: os.truncate(path, os.path.getsize(path) // 2),
    "cut to nothing": lambda path, other, rng: os.truncate(path, 0),
    "another's bytes copied over": lambda path, other, rng: shutil.copyfile(other, path),
    "another's file copied over, attributes too": lambda path, other, rng: shutil.copy2(other, path),
}


def measure_big_values(bench: Bench) -> list[Line]:
    """Measure values of a third of the cap each: all writers end, none hangs, and the cap holds."""
    processes = bench.pick(BIG_VALUES.processes, 4)
    outcome, _ = _run(bench, BIG_VALUES, processes, bench.pick(6, 1))
    peak, ended_badly = outcome.peaks.disk_bytes / BIG_VALUES.max_size_bytes, len(outcome.deaths)
    puts, dropped = outcome.totals["puts"], outcome.totals["dropped"]
    return [
        Line(
            f"{processes} writers of a third of the cap each, hung or dead",
            str(ended_badly),
            ratio=f"{puts:,} puts",
            bar="0",
            ok=not ended_badly and puts > 0,
            numbers={"processes": processes, "deaths": outcome.deaths, "puts": puts, "dropped": dropped},
        ),
        Line(
            "the same, peak",
            _BAR.show(peak, 3),
            ratio=f"{outcome.peaks.samples:,} samples",
            **_BAR.judged(peak),
            numbers={"ours_over_cap": peak, "samples": outcome.peaks.samples},
        ),
    ]


def measure_kills(bench: Bench) -> list[Line]:
    """Measure kills: every entry whole, and after one recount the accounting equals the disk."""
    scenario = replace(KILL, kills=bench.pick(KILL.kills, 3))
    outcome, directory = _run(bench, scenario, bench.pick(scenario.processes, 3), bench.pick(15, 3))
    return [_whole(outcome, scenario.kills), _drift(directory)]


def _run(bench: Bench, scenario: Scenario, processes: int, seconds: float) -> tuple[Outcome, str]:
    directory = bench.directory(scenario.name)
    options = Options(processes, seconds, scenario.max_size_bytes, seed=1, directory=directory)
    with bench.attending(directory, scenario.max_size_bytes):
        return run_bytes(scenario, options, lambda _, share, words: bench.show(share, words)), directory


def _whole(outcome: Outcome, wanted: int) -> Line:
    left = next(check for check in outcome.extra_checks if check.name == "entries left, not whole")
    wrong_reads = sum(outcome.totals[name] for name in ("torn", "stale", "foreign"))
    return Line(
        f"{outcome.kills} SIGKILLs of writers, entries not whole",
        left.value,
        ratio=f"{outcome.totals['hits']:,} hits, {wrong_reads} wrong",
        bar="0",
        # Fewer kills than asked for prove less than the line says: on a busy machine no worker may have begun yet.
        ok=left.ok and not wrong_reads and not outcome.deaths and outcome.kills == wanted,
        numbers={
            "kills": outcome.kills,
            "kills_wanted": wanted,
            "entries_not_whole": int(left.value.split()[0]),
            "wrong_reads": wrong_reads,
            "deaths": outcome.deaths,
        },
    )


def _drift(directory: str) -> Line:
    """Returns the line of the drift that is left by the one recount with which the scenario ended."""
    drift = drift_bytes(directory)
    return Line(
        "the same, drift after one recount",
        f"{drift:,} bytes",
        bar="0",
        ok=drift == 0,
        numbers={"drift_bytes": drift},
    )
