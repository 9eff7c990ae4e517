# SPDX-License-Identifier: Apache-2.0
"""Programs with which tests check files, if they are installed; Prometheus's linter, which is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def promtool() -> str:
    """Returns the path of Prometheus's linter, which is unpacked from Debian's package if it is not installed."""
    found = shutil.which("promtool")
    if found is not None:
        return found
    folder = Path("/tmp") / f"lockcache-tests-promtool-{os.getuid()}"
    unpacked = folder / "root/usr/bin/promtool"
    if not unpacked.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            pytest.skip("needs promtool, and there is no apt-get to have it by")
        folder.mkdir(mode=0o700, exist_ok=True)
        got = subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, check=False)
        packages = list(folder.glob("prometheus_*.deb"))
        if got.returncode or not packages:
            pytest.skip("needs promtool: apt-get download prometheus does not work here")
        staged = folder / f"staged-{os.getpid()}"
        subprocess.run(["dpkg", "-x", str(packages[0]), str(staged)], check=True)
        if not unpacked.exists():
            staged.rename(folder / "root")
    return str(unpacked)


def need_program(name: str) -> str:
    """Returns the path of a program. Skips the test on a machine without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found
