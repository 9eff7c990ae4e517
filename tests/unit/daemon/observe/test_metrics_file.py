# SPDX-License-Identifier: Apache-2.0
"""The file for Prometheus stays in its folder, whole."""

from __future__ import annotations

import os
from pathlib import Path

from lockcache_daemon.observe.metrics_file import MetricsFile


def test_a_folder_that_is_swapped_while_the_file_is_written_leads_it_nowhere_else(tmp_path: Path) -> None:
    """Order forced: the swap comes while the metrics are rendered, after the staged file was made."""
    folder, elsewhere = tmp_path / "collector", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "m.prom").write_bytes(b"mine")

    def render() -> bytes:
        folder.rename(tmp_path / "away")
        folder.symlink_to(elsewhere)
        return b"metrics"

    MetricsFile(f"{folder}/m.prom", render, print).write()
    assert os.listdir(elsewhere) == ["m.prom"]
    assert (elsewhere / "m.prom").read_bytes() == b"mine"
    assert {path.name: path.read_bytes() for path in (tmp_path / "away").iterdir()} == {"m.prom": b"metrics"}
