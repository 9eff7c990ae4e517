# SPDX-License-Identifier: Apache-2.0
"""Real frameworks in a sealed process: what is stored is loaded, what is new is refused before it is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache.remote.manifest import read_manifest
from tests.frameworks.support import HERDS, Programs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", [name for name in HERDS if name != "inductor"])
def test_what_is_new_is_refused_or_reported_and_hits_are_hits(name: str, tmp_path: Path) -> None:
    programs, (_, kernels) = Programs(name, tmp_path), HERDS[name]
    known, new, missed = list(kernels)[:-1], list(kernels)[-1:], tmp_path / "missed.manifest"
    programs.run(1, known)
    sealed = {"LOCKCACHE_SEALED": "error", "LOCKCACHE_SEAL_MANIFEST": str(missed)}
    [refused] = programs.run(1, [*known, *new], **sealed)
    assert (refused["compiled"], refused["failed"]) == (0, 1)
    assert "SealedError: this process is sealed, and" in refused["error"]
    assert len(read_manifest(str(missed))) >= 1
    [reported] = programs.run(1, [*known, *new], LOCKCACHE_SEALED="warn")
    assert (reported["wrong"], reported["failed"], reported["compiled"]) == (0, 0, 1)
    errors = programs.errors.read_text()
    assert "compiled while sealed: " in errors
    [again] = programs.run(1, [*known, *new], LOCKCACHE_SEALED="error")
    assert (again["wrong"], again["failed"], again["compiled"]) == (0, 0, 0)
