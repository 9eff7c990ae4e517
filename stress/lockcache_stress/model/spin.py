# SPDX-License-Identifier: Apache-2.0
"""SPIN, which explores ``lease.pml`` and ``store.pml``: the same protocol, written again, with what has to happen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_LEASE: Final = ("ends", "once", "counted")
_STORE: Final = ("ends", "capped", "counted", "exact")
_PUTS: Final = ("HELD=1", "CAP=2", "KEY=1")


class Checked(NamedTuple):
    """One model for SPIN: a file, what is defined in it, and what is claimed."""

    source: str
    defines: tuple[str, ...]
    claims: tuple[str, ...]
    #: The claims that are broken, because a fault is planted.
    broken: tuple[str, ...] = ()


#: The claims: all end, with weak fairness and one death; one computes if nobody dies; the page never says too little,
#: the disk is under the cap, and if nobody dies the page is exact in the end.
CHECKED: Final = (
    Checked("lease.pml", (), _LEASE),
    Checked("store.pml", ("REMOVE", *_PUTS), _STORE),
    Checked("store.pml", ("RECOUNT", *_PUTS), _STORE),
    Checked("store.pml", ("POLICY", *_PUTS), _STORE),
)
#: Each claim is broken by a fault.
FAULTY: Final = (
    Checked("lease.pml", ("LEASE_KEPT",), _LEASE, ("ends",)),
    Checked("store.pml", ("NO_QUEUE", "REMOVE", "HELD=0", "CAP=1", "KEY=1"), _STORE, ("ends",)),
    Checked("store.pml", ("SUM_FIRST", "REMOVE", "HELD=0", "CAP=1", "KEY=1"), _STORE, ("capped",)),
    Checked("store.pml", ("CREDITED_TWICE", "REMOVE", *_PUTS), _STORE, ("counted", "exact")),
)
_HERE: Final = os.path.dirname(__file__)
_ERRORS: Final = re.compile(r"errors: (\d+)")
_STATES: Final = re.compile(r"(\d+) states, stored")
_SECONDS: Final = 300


@dataclass(frozen=True)
class Claimed:
    """What SPIN says of one claim."""

    model: str
    claim: str
    states: int
    errors: int
    #: Whether it found what it had to find: an error only where a fault is planted that breaks the claim.
    is_expected: bool


def why_no_spin() -> str | None:
    """Returns why SPIN cannot be run here; ``None`` if it can."""
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    return f"needs {' and '.join(missing)} (Debian: spin, gcc)" if missing else None


def run_spin(checked: Sequence[Checked] = CHECKED) -> list[Claimed]:
    """Check all claims of these models. Raises RuntimeError if SPIN fails."""
    return [claimed for each in checked for claimed in _check(each)]


def _check(checked: Checked) -> list[Claimed]:
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as folder:
        shutil.copy(os.path.join(_HERE, checked.source), folder)
        _run(folder, "spin", *(f"-D{each}" for each in checked.defines), "-a", checked.source)
        _run(folder, "gcc", "-O1", "-w", "-DNFAIR=4", "-o", "pan", "pan.c")
        return [_claim(folder, checked, claim) for claim in checked.claims]


def _claim(folder: str, checked: Checked, claim: str) -> Claimed:
    said = _run(folder, "./pan", "-a", "-f", "-N", claim, "-m200000")
    errors, states = _ERRORS.search(said), _STATES.search(said)
    if errors is None or states is None or "max search depth too small" in said:
        raise RuntimeError(f"SPIN did not finish: {said}")
    model = " ".join([checked.source, *checked.defines])
    is_expected = bool(int(errors[1])) is (claim in checked.broken)
    return Claimed(model, claim, int(states[1]), int(errors[1]), is_expected)


def _run(folder: str, *words: str) -> str:
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if ran.returncode:
        raise RuntimeError(f"{words[0]} failed: {ran.stdout}{ran.stderr}")
    return ran.stdout
