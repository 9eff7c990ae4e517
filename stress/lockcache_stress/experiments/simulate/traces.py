# SPDX-License-Identifier: Apache-2.0
"""Traces: sequences of look-ups, drawn or recorded.

Three are drawn by Zipf's law, with sources that change now and then. One is of a CI that builds for six architectures.
One was recorded: what the tests of this project looked up while they ran real frameworks (``frameworks.json``, which
says how it was made).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.simulate.programs import Program, check_programs, load_list, save_list
from lockcache_stress.zipf import Zipf

_LARGEST: Final = 2**31
_RECORDED: Final = Path(__file__).with_name("frameworks.json")

_ARCHITECTURES: Final = 6
# Of a CI: how many sources a commit changes at most, how many branches are open, how often one is built, and the share
# of programs that tests load again.
_MOST_CHANGED: Final = 3
_BRANCHES: Final = 4
_MOST_BUILDS: Final = 5
_TESTED: Final = 0.3


class Request(NamedTuple):
    """One look-up: the program, and the version of its source. A newer version is another cache entry."""

    program: int
    version: int


def make_trace(programs: int, requests: int, seed: int, *, exponent: float, changed: float) -> list[Request]:
    """Returns ``requests`` look-ups; before each, with probability ``changed``, the source of some program changes."""
    rng = random.Random(f"{seed}/trace")
    by_popularity = rng.sample(range(programs), programs)  # so that popularity does not follow the order of compiling
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
    """Write a trace for ``--trace``. Raises :class:`OSError`."""
    save_list(path, "requests", trace)


def load_trace(path: str, programs: int) -> list[Request]:
    """Returns the trace that :func:`save_trace` wrote.

    Raises :class:`UnusableError` naming what is wrong, and :class:`OSError`.
    """
    trace = load_list(path, "requests", lambda item: Request(*item), "trace")
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


class Trace(NamedTuple):
    """A trace, with the programs that it looks up."""

    name: str
    programs: list[Program]
    requests: list[Request]


def standard_traces(programs: list[Program], requests: int, seed: int) -> list[Trace]:
    """Returns the five traces that orders of eviction are compared on."""
    drawn = (("default", 0.8, 0.01), ("zipf 1.1", 1.1, 0.01), ("changed 0.1", 0.8, 0.1))
    traces = [
        Trace(name, programs, make_trace(len(programs), requests, seed, exponent=exponent, changed=changed))
        for name, exponent, changed in drawn
    ]
    return [*traces, recorded_trace(), ci_trace(programs, requests, seed)]


def recorded_trace() -> Trace:
    """Returns the look-ups of the tests with real frameworks."""
    path = str(_RECORDED)
    programs = check_programs(path, load_list(path, "programs", lambda item: Program(*item), "compile costs"))
    return Trace("frameworks", programs, load_trace(path, len(programs)))


def ci_trace(programs: Sequence[Program], requests: int, seed: int) -> Trace:
    """Returns the look-ups of a CI that builds all sources for six architectures, one job for each, at the same time.

    A build is of the main branch, or of one of four others, whose own versions of some sources nobody wants once they
    are merged. Afterwards tests load a third of the programs again.
    """
    rng = random.Random(f"{seed}/ci")
    built = _for_each_architecture(programs)
    sources = len(built) // _ARCHITECTURES
    main, branches, newest, trace = [0] * sources, list[_Branch](), 0, list[Request]()
    while len(trace) < requests:
        if len(branches) < _BRANCHES:
            newest += 1
            changed = rng.sample(range(sources), min(sources, rng.randint(1, _MOST_CHANGED)))
            branches.append(_Branch(dict.fromkeys(changed, newest), rng.randint(1, _MOST_BUILDS)))
        branch = rng.choice(branches)
        for _ in range(branch.builds):
            trace += _build([branch.versions.get(source, main[source]) for source in range(sources)], rng)
        branches.remove(branch)
        for source, version in branch.versions.items():
            main[source] = version
        trace += _build(main, rng)
    return Trace("CI of six architectures", built, trace[:requests])


class _Branch(NamedTuple):
    versions: dict[int, int]
    builds: int


def _build(versions: Sequence[int], rng: random.Random) -> list[Request]:
    compiled = [
        Request(source * _ARCHITECTURES + arch, version)
        for source, version in enumerate(versions)
        for arch in range(_ARCHITECTURES)
    ]
    return compiled + rng.sample(compiled, int(len(compiled) * _TESTED))


def _for_each_architecture(programs: Sequence[Program]) -> list[Program]:
    """Returns each source's programs, six in a row; those that were measured for fewer stand for the others."""
    by_source: dict[str, list[Program]] = {}
    for program in programs:
        by_source.setdefault(program.name.split(" for ")[0], []).append(program)
    return [
        measured[arch % len(measured)]._replace(name=f"{source}, architecture {arch}")
        for source, measured in by_source.items()
        for arch in range(_ARCHITECTURES)
    ]
