"""Traces of what is asked for, in order: by Zipf, with sources that change now and then. The same for the same seed."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.simulate.programs import load, save
from lockcache_stress.zipf import Zipf

__all__ = ["Request", "load_trace", "make_trace", "save_trace"]

_LARGEST: Final = 2**31


class Request(NamedTuple):
    """One look-up: which program, and which version of its source. A newer version is another cache entry."""

    program: int
    version: int


def make_trace(programs: int, requests: int, seed: int, *, exponent: float, changed: float) -> list[Request]:
    """``requests`` look-ups; before each, with probability ``changed``, the source of some program changes."""
    rng = random.Random(f"{seed}/trace")
    by_popularity = rng.sample(range(programs), programs)  # so that what is popular is not what was compiled first
    zipf = Zipf(rng, programs, exponent)
    versions = [0] * programs
    trace = []
    for _ in range(requests):
        if rng.random() < changed:
            versions[rng.randrange(programs)] += 1
        program = by_popularity[zipf.draw()]
        trace.append(Request(program, versions[program]))
    return trace


def save_trace(path: str, trace: list[Request]) -> None:
    """Write it for ``--trace``. Raises :class:`OSError`."""
    save(path, "requests", trace)


def load_trace(path: str, programs: int) -> list[Request]:
    """Read what :func:`save_trace` wrote. Raises :class:`UnusableError` naming what is wrong, and :class:`OSError`."""
    trace = load(path, "requests", lambda item: Request(*item), "trace")
    if not trace:
        raise UnusableError(f"{path}: at least one request is wanted")
    for request in trace:
        if not all(type(number) is int and 0 <= number < _LARGEST for number in request):
            raise UnusableError(
                f"{path}: {list(request)} is not a request; wanted: two integers, a program and a version"
            )
        if request.program >= programs:
            raise UnusableError(f"{path} asks for program {request.program}, and there are costs of {programs} only")
    return trace
