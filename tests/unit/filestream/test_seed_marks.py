# SPDX-License-Identifier: Apache-2.0
"""Marks in a seed: which seed is a directory's alone, and which readers see that it serves nothing any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.filestream.seed_marks import has_one_name, withdraw


@pytest.mark.parametrize("names", [0, 1, 2])
def test_a_seed_is_withdrawn_where_it_is_this_directorys_alone(names: int, tmp_path: Path) -> None:
    path = tmp_path / "seed"
    path.write_bytes(b"")
    with path.open("r+b") as file:
        if names == 2:
            os.link(path, tmp_path / "other")
        elif not names:
            path.unlink()
        assert has_one_name(file.fileno()) == (names == 1)
        assert withdraw(file.fileno()) == (names == 1)
