# SPDX-License-Identifier: Apache-2.0
"""Row ``eviction``: modules from hits stay loaded while the whole directory is evicted, and launch as before.

In each round every process holds the modules that it got (without a GPU: their bytes), all entries are evicted, and the
processes launch what they hold and compare the results. Then they ask for all programs again, so that each is compiled
once and loaded again.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Final, NamedTuple

from lockcache import FileStreamProgramCache
from lockcache.lowlevel import CacheDirectory, Selection, choose_selected, evict_selected
from lockcache_stress.experiments.gpu_kit.member import Member, run_crowd
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.gpu import make_slots, program_options
from lockcache_stress.run import Check, equal, zero
from lockcache_stress.trouble import Workspace

# Of eight kernels two are small code and six are tables of up to half a megabyte each, so that modules of real sizes
# are evicted.
_KERNELS: Final = 8
_LOCK_SECONDS: Final = 5.0
_ROUND_SECONDS: Final = 3.0
_FEWEST_ROUNDS: Final = 2
_MOST_ROUNDS: Final = 12


class _Held(NamedTuple):
    code: Any
    digest: str
    kernel: Any
    expected: list[int]


class _Evictor:
    """Evicts all entries before each round but the first."""

    def __init__(self) -> None:
        self.evicted = self.left = self.left_files = 0

    def __call__(self, phase: int, space: Workspace) -> None:
        if phase == 0:
            return
        directory = CacheDirectory(space.cache, _LOCK_SECONDS)
        try:
            victims = choose_selected(directory.layout, Selection(), None, time.time_ns(), lambda: None)
            self.evicted += evict_selected(directory, victims, None, lambda count: None).entries
        finally:
            directory.close()
        self.left += len(FileStreamProgramCache(space.cache))
        # Counts files and not bytes, because the folders of shards stay and take blocks.
        folders = (directory.layout.entries, directory.layout.records, directory.layout.tmp)
        self.left_files += sum(len(files) for folder in folders for _, _, files in os.walk(folder))


def run_eviction(kit: Kit) -> Found:
    """Run the row."""
    rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(kit.seconds / _ROUND_SECONDS)))
    evictor = _Evictor()
    crowd = run_crowd(kit, _work, rounds, before=evictor)
    compiles = [crowd.count("compiles", phase) for phase in range(rounds)]
    held = sum(crowd.count("held", phase) for phase in range(rounds))
    lines = [
        Check("entries evicted", f"{evictor.evicted:,}", str((rounds - 1) * _KERNELS), evictor.evicted > 0),
        Check(
            "entries and files left", f"{evictor.left:,} and {evictor.left_files:,}", "0 and 0", not evictor.left_files
        ),
        Check("compiles a round", ", ".join(map(str, compiles)), str(_KERNELS), set(compiles) == {_KERNELS}),
        equal("used after they were evicted", held, (rounds - 1) * _KERNELS * crowd.processes),
        zero("wrong bytes or results", crowd.wrong),
    ]
    what = "modules launched" if kit.gpu_arch else "programs held"
    did = f"{evictor.evicted:,} entries evicted in {rounds - 1} rounds, {held:,} {what} afterwards"
    return crowd.found("eviction", did, lines, sum(compiles), rounds=rounds)


def _work(member: Member, phase: int) -> None:
    for number, held in enumerate(member.kept):
        same = hashlib.blake2b(bytes(held.code.code)).hexdigest() == held.digest
        member.must(same, f"kernel {number}: its bytes changed when its entry was evicted")
        member.launch(held.kernel, held.expected, f"kernel {number}, evicted")
        member.answer.counts["held"] += 1
    task = member.task
    slots = make_slots(_KERNELS, task.seed, (task.arch,))
    kept = []
    for number, slot in enumerate(slots):
        code = member.compile(f"// {task.token}\n{slot.kernel.source(0)}", program_options(slot.arch))
        digest = hashlib.blake2b(bytes(code.code)).hexdigest()
        member.answer.digests[f"kernel {number}"] = digest
        kernel, expected = member.load(code), slot.kernel.expected(0)
        member.launch(kernel, expected, f"kernel {number}")
        kept.append(_Held(code, digest, kernel, expected))
    member.kept = kept
