# SPDX-License-Identifier: Apache-2.0
"""``make demo``: installs what the demonstration needs, if ``make venv`` has not, and runs ``lockcache-stress demo``.

Uses the standard library alone. The environment is ``build/demo``, made again when ``stress/demo/demo.txt`` has
changed. A death in between leaves an environment without its stamp, which the next run makes again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
_NEEDS: Final = PROJECT / "stress" / "demo" / "demo.txt"
_FOLDER: Final = PROJECT / "build" / "demo"
_SIZES: Final = "95 MB of wheels, 310 MB on disk"
# What the wheels of demo.txt were in October 2026: the bar's scale while it is not known how much there will be.
_EXPECTED_BYTES: Final = 95_000_000
_CELLS: Final = 30
# Of the bar, the part for downloading; the rest is unpacking.
_DOWNLOADING: Final = 0.7


class Bar:
    """A bar on stderr for the whole installation; without a terminal, nothing."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._began = time.monotonic()

    def show(self, share: float, words: str) -> None:
        """Draw the bar, and what goes on."""
        if self._is_shown:
            filled = round(_CELLS * min(share, 1.0))
            bar = "#" * filled + "-" * (_CELLS - filled)
            seconds = time.monotonic() - self._began
            print(f"\r  [{bar}] {share:4.0%} {seconds:3.0f} s  {words[:28]:28}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def main() -> None:
    """Make the environment if need be, and become the program."""
    developed = PROJECT / ".venv"
    if (developed / "stamp").exists():
        python = developed / "bin" / "python"
    else:
        python = _FOLDER / "bin" / "python"
        if not _is_installed():
            print("Installs cuda.core and NVIDIA's compiler NVRTC into build/demo, once:")
            print(f"{_SIZES}. Then the demo takes about 50 seconds.", flush=True)
            _install()
    paths = [str(PROJECT / each) for each in (".", "daemon", "stress")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    os.execve(python, [str(python), "-m", "lockcache_stress", "demo", *sys.argv[1:]], environment)


def _is_installed() -> bool:
    stamp = _FOLDER / "stamp"
    return stamp.exists() and stamp.read_text() == f"{PROJECT}\n{_NEEDS.read_text()}"


def _install() -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    bar = Bar()
    bar.show(0.0, "creating build/demo")
    venv.create(_FOLDER, with_pip=True)
    pip = [_FOLDER / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
    subprocess.run([*pip, "--quiet", "pip>=24.1"], check=True, capture_output=True)  # the first with --progress-bar raw
    said, code = _run([*pip, "--progress-bar", "raw", "--requirement", _NEEDS], bar)
    bar.close()
    if code:
        sys.exit(f"pip could not install what stress/demo/demo.txt names:\n{said}")
    (_FOLDER / "stamp").write_text(f"{PROJECT}\n{_NEEDS.read_text()}")


def _run(command: list[object], bar: Bar) -> tuple[str, int]:
    """Run pip, and draw its progress. Returns its last lines and its exit code."""
    lines: list[str] = []
    done_bytes, name, ended = 0, "", threading.Event()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as pip:
        for line in pip.stdout or ():
            if found := re.match(r"Progress (\d+) of (\d+)", line):
                now, all_ = int(found[1]), int(found[2])
                bar.show(_DOWNLOADING * min(1.0, (done_bytes + now) / _EXPECTED_BYTES), name)
                done_bytes += all_ if now == all_ else 0
                continue
            lines = [*lines[-20:], line]
            if found := re.search(r"(?:Downloading|Using cached|Processing) (?:\S*/)?([\w.]+)-", line):
                name = found[1]
                bar.show(_DOWNLOADING * min(1.0, done_bytes / _EXPECTED_BYTES), name)
            if found := re.match(r"Installing collected packages: (.*)", line):
                unpacking = threading.Thread(target=_show_unpacking, args=(found[1].split(", "), bar, ended))
                unpacking.start()
        code = pip.wait()
        ended.set()
    return "".join(lines), code


def _show_unpacking(packages: list[str], bar: Bar, ended: threading.Event) -> None:
    [site] = (_FOLDER / "lib").glob("python*/site-packages")
    before = len(list(site.glob("*.dist-info")))
    while not ended.wait(0.2):
        unpacked = len(list(site.glob("*.dist-info"))) - before
        share = min(1.0, unpacked / len(packages))
        bar.show(_DOWNLOADING + (1 - _DOWNLOADING) * share, f"unpacking {packages[min(unpacked, len(packages) - 1)]}")


if __name__ == "__main__":
    main()
