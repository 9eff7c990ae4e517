# SPDX-License-Identifier: Apache-2.0
"""The pictures of the README, made of real runs: ``make pictures``, which takes an hour, for the page shows one.

``demo.svg`` is what a terminal shows: a program in four processes without a cache and with it, then a command.
``status-page.png`` is the daemon's page in a real browser, after ``--minutes`` in which a program read and wrote by a
power law.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from lockcache import Entry, FileStreamProgramCache, Turn

PROJECT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))
from tests.daemon.browser import Browser  # noqa: E402

_COLUMNS: Final = 96
_PAUSE_SECONDS: Final = 0.2
_NAMESPACES: Final = ("torch", "triton", "jax")
_KERNELS: Final = ("gemm", "softmax", "layer_norm", "attention", "reduce", "scan", "sort", "fft", "stencil", "gather")

#: As rich's own, without the fonts that it would load from elsewhere.
_FORMAT: Final = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""

_PROGRAM: Final = """
import multiprocessing, sys, time
from pathlib import Path
from cuda.core import ProgramOptions
from cuda.pathfinder import find_nvidia_header_directory
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program

SOURCE = "#include <cuda_fp16.h>\\n__global__ void scale%d(__half *x, __half a) { x[threadIdx.x] = __hmul(x[%d], a); }"

def work(rank, directory, begin, said):
    cache = FileStreamProgramCache(directory) if directory else None
    options = ProgramOptions(arch="sm_90", include_path=find_nvidia_header_directory("cudart"))
    begin.wait()
    began = time.perf_counter()
    for kernel in range(16):
        Program(SOURCE % (kernel, kernel), "c++", options).compile("cubin", cache=cache)
    said.put((rank, time.perf_counter() - began, cache.stats().puts if cache else 16))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    begin, said = context.Barrier(4), context.Queue()
    for rank in range(4):
        context.Process(target=work, args=(rank, sys.argv[1] if sys.argv[1:] else None, begin, said)).start()
    ranks, scale = sorted(said.get() for _ in range(4)), Path("longest")
    if not scale.exists():  # of the first run, which the others are drawn to
        scale.write_text(str(max(seconds for _, seconds, _ in ranks)))
    for rank, seconds, compiled in ranks:
        bar = "\\u2588" * max(1, round(52 * seconds / float(scale.read_text())))
        print(f"rank {rank}  {bar} {seconds:.2f} s, {compiled} compiled")
"""

_SESSION: Final = (
    "python train.py            # 4 ranks, 16 kernels each, no cache",
    "python train.py kernels    # the same with lockcache, nothing cached yet",
    "python train.py kernels    # the next start",
    "lockcache stats kernels | grep -E 'processes|saved'",
)


def record(commands: Sequence[str], folder: Path) -> str:
    """Returns what a terminal shows of these commands, as SVG."""
    console = Console(record=True, width=_COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for command in commands:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), highlight=False)
        console.print(Text.from_ansi(_said(command, folder)), highlight=False)
    return console.export_svg(title="lockcache", theme=DIMMED_MONOKAI, code_format=_FORMAT, unique_id="lockcache")


def _said(command: str, folder: Path) -> str:
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color"}
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, stdout=child, env=environment)
    os.close(child)
    said = b""
    with os.fdopen(parent, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(65536):
                said += part
        except OSError:  # the end of a terminal's output
            process.wait()
    if process.wait():
        raise RuntimeError(f"{command}: exit code {process.returncode}\n{said.decode()}")
    return said.decode().replace("\r\n", "\n").rstrip("\n")


def take_status_page(file: Path, folder: Path, minutes: float) -> None:
    """Write a picture of the status page, after so long."""
    with _daemon(folder / "kernels") as address, FileStreamProgramCache(folder / "kernels") as cache:
        work(cache, time.monotonic() + 60 * minutes)
        Browser(folder / "browser").screenshot(address, file, width=1200, height=1101)


@contextmanager
def _daemon(directory: Path) -> Iterator[str]:
    command = ["lockcache-daemon", "--max-size", "96M", "--metrics", "127.0.0.1:0", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as daemon:
        try:
            yield next(found[0] for line in daemon.stdout or () if (found := re.search(r"http://\S+", line)))
        finally:
            daemon.terminate()


def work(cache: FileStreamProgramCache, end: float) -> None:
    """Read and write as programs do: some kernels often, and new ones now and then, more so every ten minutes."""
    rng, begin, made = Random(0), time.monotonic(), 0
    while (now := time.monotonic()) < end:
        is_burst = (now - begin) % 600 < 120
        if made < 50 or rng.random() < (0.5 if is_burst else 0.03):
            made += 1
            kernel = f"{rng.choice(_KERNELS)}_{made}"
            size, cost_ns = int(rng.lognormvariate(11, 1)), int(rng.lognormvariate(20, 0.8))
            entry = {
                "kind": "cubin",
                "arch": "sm_90" if made % 5 else "sm_80",
                "compiler": "nvrtc 13.4",
                "compile_cost_ns": cost_ns,
            }
            turn = cache.begin(f"kernel {made}", label=kernel, namespace=_NAMESPACES[made % 7 % 3])
            if isinstance(turn, Turn):
                turn.store(Entry(rng.randbytes(size), entry))
        for _ in range(20):
            cache.get(f"kernel {max(1, made - int(rng.paretovariate(0.6)))}")
        cache.stats()  # writes this process's counters into the directory
        time.sleep(_PAUSE_SECONDS)  # the pace of the programs, which is all that is wanted of it


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the README.")
    parser.add_argument("--minutes", type=float, default=60, help="of work before the page's picture; 0 leaves it out")
    parser.add_argument("--into", type=Path, default=PROJECT / "docs" / "_static")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(_PROGRAM)
        (given.into / "demo.svg").write_text(record(_SESSION, folder))
        if given.minutes:
            take_status_page(given.into / "status-page.png", folder, given.minutes)


if __name__ == "__main__":
    main()
