"""Row ``lto-ir``: units that hits gave as LTO-IR are linked to a cubin, in another process, and launched.

The first process also compiles and links each pair without a cache: what the others link from hits must be the same
bytes. The link needs no GPU.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.crowd import run_crowd
from lockcache_stress.experiments.gpu_kit.member import Member
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.gpu import Pair, compile_uncached, link_cubin, make_pairs, program_options
from lockcache_stress.run import equal, some, zero

__all__ = ["run_linking"]

_PAIRS: Final = 3
_COMPILE, _HIT = 0, 1


def run_linking(kit: Kit) -> Found:
    """Runs the row."""
    crowd = run_crowd(kit, _work, 2)
    compiles, more = crowd.count("compiles", _COMPILE), crowd.count("compiles", _HIT)
    links = crowd.count("links", _HIT)
    lines = [
        equal("compiles", compiles, 2 * _PAIRS),
        zero("compiles of what was there", more),
        some("linked from hits", links),
        zero("wrong bytes or results", crowd.wrong),
    ]
    did = f"{_PAIRS} pairs of units, linked {links:,} times from hits"
    return crowd.found("lto-ir", did, lines, compiles + more)


def _work(member: Member, phase: int) -> None:
    task = member.task
    pairs = make_pairs(_PAIRS, task.seed, task.token)
    options = program_options(task.arch, linked=True)
    if phase == _COMPILE:
        for number, pair in enumerate(pairs):
            if member.index == 0:
                units = [compile_uncached(source, options, "ltoir") for source in pair.sources]
                _note(member, number, link_cubin(units, task.arch))
            for source in pair.sources:
                member.compile(source, options, "ltoir")
        return
    goes_on = member.until_time()
    while True:
        for number, pair in enumerate(pairs):
            _link(member, number, pair, options)
        if not goes_on():
            return


def _link(member: Member, number: int, pair: Pair, options: Any) -> None:
    units = [member.compile(source, options, "ltoir") for source in pair.sources]
    linked = link_cubin(units, member.task.arch)
    member.answer.counts["links"] += 1
    _note(member, number, linked)
    member.launch(member.load(linked), pair.expected(), f"pair {number}")


def _note(member: Member, number: int, linked: Any) -> None:
    member.answer.digests[f"pair {number}"] = hashlib.blake2b(bytes(linked.code)).hexdigest()
