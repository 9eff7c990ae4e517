"""Passwords in the URL of a server: not in the process list while a command runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.servers import free_port


@pytest.mark.parametrize("form", ["--remote={}", "--remote {}"])
@pytest.mark.parametrize("url", ["redis://:TOPSECRET@127.0.0.1:{}", "redis://127.0.0.1:{}?password=TOPSECRET"])
def test_no_user_of_the_host_reads_the_password_of_a_running_command(form: str, url: str, tmp_path: Path) -> None:
    remote = form.format(url.format(free_port())).split(" ")
    # The command looks at the process that started it.
    look = ["sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; printenv LOCKCACHE_REMOTE"]
    words = [sys.executable, "-m", "lockcache", "run", "--quiet", "--dir", str(tmp_path), *remote, "--", *look]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    seen, variable = ended.stdout.rpartition("redis://")[0], ended.stdout.rpartition("redis://")[2]
    assert "lockcache run" in seen, "it is the command line of lockcache"
    assert "TOPSECRET" not in seen
    assert "TOPSECRET" in variable, "and the command has the whole URL"
