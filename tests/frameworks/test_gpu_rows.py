# SPDX-License-Identifier: Apache-2.0
"""The row of the GPU kit that compiles with torch, here for the CPU: its programs, its phases and its checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lockcache_stress.experiments.gpu_kit.frameworks import inductor_row
from lockcache_stress.experiments.gpu_kit.plan import Kit, KitOptions
from tests.frameworks.support import ROOT, Programs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_torch_compile_on_new_nodes_is_all_hits_and_as_right_as_without_lockcache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Programs("inductor", tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs.python))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'stress'}")
    monkeypatch.setattr(inductor_row, "_PATIENCE_SECONDS", 400.0)
    kit = Kit(KitOptions(seconds=1.0, processes=2, seed=1), None, 1.0, lambda *_: None)
    found = inductor_row.run_inductor(kit, device="cpu")
    # How quick each is, is not asked: the C++ compiler takes what it takes on a busy machine.
    failed = {check.name for check in found.outcome.checks() if not check.ok} - {"cold over new nodes"}
    assert not failed, found.outcome.as_json()
    assert found.wrong == 0
