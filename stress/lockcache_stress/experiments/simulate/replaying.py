"""Replaying a trace against a cache of some size: what is a hit, and how many compile seconds that saved.

Decides nothing about eviction: which entries go is what :mod:`lockcache.filestream.eviction.choose` says, the function
that writers call, with their batch. Time is counted in requests, a second each; no order by cost depends on the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lockcache.filestream.eviction import choose_by_priority, need_of_writer
from lockcache.lowlevel import Found, Priority
from lockcache_stress.experiments.simulate.programs import Program
from lockcache_stress.experiments.simulate.trace import Request

__all__ = ["Saved", "replay", "upper_bound"]

_REQUEST_NS: Final = 10**9


class Saved(NamedTuple):
    """What a cache was good for."""

    hits: int
    saved_ns: int
    evictions: int = 0


def replay(trace: Sequence[Request], programs: Sequence[Program], limit_bytes: int, priority: Priority) -> Saved:
    """A cache of ``limit_bytes`` that evicts by ``priority``, empty at first."""
    held: dict[str, Found] = {}
    costs = {_name(request): programs[request.program].cost_ns for request in trace}
    held_bytes = hits = saved_ns = evictions = 0
    for number, request in enumerate(trace, 1):
        name, program, now_ns = _name(request), programs[request.program], number * _REQUEST_NS
        if name in held:
            held[name] = held[name]._replace(last_use_ns=now_ns)
            hits += 1
            saved_ns += program.cost_ns
            continue
        if program.size_bytes > limit_bytes:
            continue  # dropped, as a cache drops what is larger than its cap
        needed = held_bytes + program.size_bytes - limit_bytes
        if needed > 0:
            need = need_of_writer(needed, len(held))
            victims, _ = choose_by_priority(
                list(held.values()), need, priority, lambda found: costs[found.name], now_ns
            )
            for victim in victims:
                del held[victim.name]
                held_bytes -= victim.size_bytes
            evictions += len(victims)
        held[name] = Found(now_ns, name, program.size_bytes, 1)
        held_bytes += program.size_bytes
    return Saved(hits, saved_ns, evictions)


def upper_bound(trace: Sequence[Request], programs: Sequence[Program], limit_bytes: int) -> int:
    """Nanoseconds that no cache of this size saves more of, even one that knows what comes.

    To hit, an entry has to stay from one use to the next: that takes its bytes for so long. All of that together cannot
    be more than the cache's bytes for as long as the trace lasts; what saves most for what it takes is taken first, the
    last in part (PFOO-U: Berger, Beckmann, Harchol-Balter, Practical Bounds on Optimal Caching with Variable Object
    Sizes, SIGMETRICS 2018).
    """
    last: dict[Request, int] = {}
    stays: list[tuple[int, int]] = []  # what it saves, what it takes
    for number, request in enumerate(trace):
        program = programs[request.program]
        if request in last and program.size_bytes <= limit_bytes:
            stays.append((program.cost_ns, program.size_bytes * (number - last[request])))
        last[request] = number
    left, saved_ns = limit_bytes * len(trace), 0.0
    for cost_ns, takes in sorted(stays, key=lambda stay: stay[1] / stay[0]):
        if takes > left:
            saved_ns += cost_ns * left / takes
            break
        left -= takes
        saved_ns += cost_ns
    return int(saved_ns)


def _name(request: Request) -> str:
    return f"{request.program:08x}.{request.version:08x}"
