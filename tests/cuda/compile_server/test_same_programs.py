# SPDX-License-Identifier: Apache-2.0
"""Equality for the programs of the stress suite: both of each pair of ``keys``, and the kernels of ``simulate``.

Each is compiled in a process of its own, in which NVRTC is not loaded yet: after a program with ``optimization_info``
all logs of a process have remarks, after one with ``restrict`` all code is as if with it, and ``NV_NVVM_VERSION`` is
read once, as NVRTC is loaded.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cuda.core._utils.cuda_utils import CUDAError  # cuda.core has no public name for this class

from lockcache.compile_server import head_of, read_state
from lockcache_stress.experiments.keys import pairs
from lockcache_stress.experiments.simulate import programs as simulated
from lockcache_stress.gpu import make_slots, need_archs
from tests.cuda.compile_server.programs import Result, compiled
from tests.unit.forked import in_child

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("patient", "settled"),
]

#: As many as ``lockcache-stress keys`` and ``simulate`` take, with ``LOCKCACHE_ALL_PAIRS=1``: ten minutes.
IS_WHOLE = os.environ.get("LOCKCACHE_ALL_PAIRS") == "1"
#: For a machine that is busy, and with a holder for each of hundreds of prefixes in turn.
LIMITS = {"kept_seconds": 0.0, "answer_seconds": 3000.0, "create_seconds": 3000.0, "told_seconds": 3000.0}


def tried(*arguments: Any, **options: Any) -> Result | None:
    """Returns what a program was compiled to; ``None`` for one that NVRTC refuses."""
    try:
        return compiled(*arguments, **options)
    except (CUDAError, RuntimeError, ValueError):
        return None


def archs_here() -> tuple[str, ...]:
    return tuple(in_child(lambda: need_archs("programs are compiled with")))


class Compared:
    """What was compared."""

    def __init__(self) -> None:
        self.refused = self.same = 0

    def __call__(self, source: str, folder: Path, target: str, names: tuple[str, ...] = (), **options: Any) -> None:
        """Compile by the process itself and by the server. A program that NVRTC refuses is counted."""
        plain, served = (
            in_child(lambda mode=mode: tried(source, folder / mode, mode, target, names, **options))  # type: ignore[misc]
            for mode in ("off", "on")
        )
        assert served == plain, (source, target, options)
        self.same += plain is not None
        self.refused += plain is None

    def report(self) -> dict[str, Any]:
        """Print what was compared, and return what the server says."""
        state = read_state()
        assert state is not None
        said = {name: state[name] for name in ("compiled", "left", "failed", "checked", "differences")}
        print(f"\nprograms that are the same: {self.same}, refused by NVRTC: {self.refused}, of the server: {said}")
        return said


def test_both_programs_of_each_pair_of_keys_are_the_same(
    place: Path, started: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    started(**LIMITS)
    archs, rng = archs_here(), random.Random("served")
    changes, drawn = pairs._changes(archs), []
    for number in range(200 if IS_WHOLE else 10):
        before = pairs._draw(rng, archs)
        drawn += [before, changes[[*changes][number % len(changes)]](rng, before)]
    compare = Compared()
    for number, program in enumerate(drawn):
        with pairs._surroundings(str(tmp_path), program) as include_path:
            options: dict[str, Any] = {"name": "k.cu", "include_path": include_path, **program.fields}
            if program.target == "ltoir":
                options["link_time_optimization"] = True
            options["define_macro"] = [*program.macros.items()] or None
            source = pairs._SOURCE.format(salt=program.salt)
            compare(source, tmp_path / str(number), program.target, program.names, **options)
    said = compare.report()
    assert compare.same > len(drawn) / 2
    assert said["compiled"] > compare.same / 2
    assert said["differences"] == 0


def test_the_kernels_of_simulate_are_the_same(
    place: Path, started: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))  # into which NVRTC unpacks its own headers
    started(**LIMITS)
    archs, compare = archs_here(), Compared()
    sources = simulated._with_headers(5 if IS_WHOLE else 2, 0)
    for number, source in enumerate(sources.values()):
        for again in (source, source.replace("run", "other")):  # so that one comes after the first of its prefix
            folder = tmp_path / f"{number}{len(again)}"
            compare(again, folder, "cubin", arch=archs[0], std="c++17", use_bundled_headers=True, include_path=None)
    served = compare.report()
    slots = make_slots(40, 0, archs)
    for slot in slots:  # the other kernels include nothing, so that no server is asked
        assert not any(head_of(slot.kernel.source(variant)) for variant in range(slot.variants))
    compare(slots[0].kernel.source(0), tmp_path / "plain", "cubin", arch=slots[0].arch, std="c++17")
    assert compare.report() == served
    assert compare.refused == 0
    assert served["compiled"] == 2 * len(sources)
    assert served["differences"] == 0
