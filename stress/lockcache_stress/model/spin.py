# SPDX-License-Identifier: Apache-2.0
"""SPIN, which explores ``lease.pml``: the same protocol, written again, with what has to happen in the end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Final

#: The claims: all end, with weak fairness; one computes if nobody dies; the page never says too little.
CLAIMS: Final = ("ends", "once", "counted")
_SOURCE: Final = os.path.join(os.path.dirname(__file__), "lease.pml")
_ERRORS: Final = re.compile(r"errors: (\d+)")
_STATES: Final = re.compile(r"(\d+) states, stored")
_SECONDS: Final = 120


@dataclass(frozen=True)
class Claimed:
    """What SPIN says of one claim."""

    claim: str
    states: int
    errors: int


def why_no_spin() -> str | None:
    """Returns why SPIN cannot be run here; ``None`` if it can."""
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    return f"needs {' and '.join(missing)} (Debian: spin, gcc)" if missing else None


def run_spin(*, fault: bool = False) -> list[Claimed]:
    """Check all claims. ``fault``: the lease of a dead holder does not fall. Raises RuntimeError if SPIN fails."""
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as folder:
        shutil.copy(_SOURCE, folder)
        _run(folder, "spin", *(["-DLEASE_KEPT"] if fault else []), "-a", "lease.pml")
        _run(folder, "gcc", "-O2", "-w", "-DNFAIR=4", "-o", "pan", "pan.c")
        return [_claim(folder, claim) for claim in CLAIMS]


def _claim(folder: str, claim: str) -> Claimed:
    said = _run(folder, "./pan", "-a", "-f", "-N", claim, "-m100000")
    errors, states = _ERRORS.search(said), _STATES.search(said)
    if errors is None or states is None or "max search depth too small" in said:
        raise RuntimeError(f"SPIN did not finish: {said}")
    return Claimed(claim, int(states[1]), int(errors[1]))


def _run(folder: str, *words: str) -> str:
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if ran.returncode:
        raise RuntimeError(f"{words[0]} failed: {ran.stdout}{ran.stderr}")
    return ran.stdout
