# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, for tests of pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.daemon_process import HANG_SECONDS

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """The browser. Skips the test where there is none."""

    def __init__(self, profile: Path) -> None:
        found = next(filter(None, map(shutil.which, _NAMES)), None)
        if found is None:
            pytest.skip(f"needs one of {', '.join(_NAMES)}, such as by apt-get install chromium-headless-shell")
        self._command = [found, "--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        if sys.platform == "linux" and os.geteuid() == 0:
            self._command.append("--no-sandbox")  # Chromium has no sandbox for root

    def dom(self, url: str, *, width: int = 1200) -> str:
        """Returns the document as the browser has it after loading."""
        return self._run("--dump-dom", f"--window-size={width},1000", url)

    def screenshot(self, url: str, file: Path, *, dark: bool = False, width: int = 1200, height: int = 1000) -> bytes:
        """Returns a picture (PNG) of the page."""
        scheme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        self._run(f"--screenshot={file}", f"--window-size={width},{height}", *scheme, url)
        return file.read_bytes()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
