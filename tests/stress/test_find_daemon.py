"""The daemon that stress runs start is this interpreter's own, installed or not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockcache_stress.run import find_daemon


def test_the_daemon_is_found_and_runs_where_no_console_script_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    command = find_daemon()
    assert command is not None
    ran = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.startswith("lockcache-daemon ")
