# SPDX-License-Identifier: Apache-2.0
"""A distant server: a node fetches a job's kernels in a round trip each, or all at once by the job's manifest.

Measures the time that a node without entries takes from the import to its last hit. The time with a manifest is judged,
for a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from lockcache_stress.run import Check, Show, Tabled, equal
from lockcache_stress.servers import KINDS, FaultProxy

__all__ = ["run_distant"]

_KERNELS: Final = 300
_BYTES: Final = 16_384
_DELAY_SECONDS: Final = 0.05
_MOST_SECONDS: Final = 1.0
_PROGRAM: Final = """
import json, sys, time
began = time.monotonic()
from lockcache import FileStreamProgramCache
directory, kernels, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def payload(number):
    return (b"%d " % number * size)[:size]
computed = wrong = 0
with FileStreamProgramCache(directory) as cache:
    for number in range(kernels):
        found = cache.get(f"kernel {number}")
        if found is None:
            cache[f"kernel {number}"] = payload(number)
            computed += 1
        else:
            wrong += found != payload(number)
    seconds = time.monotonic() - began
print(json.dumps({"seconds": round(seconds, 2), "computed": computed, "wrong": wrong}))
"""


def run_distant(kind: str, folder: Path, show: Show) -> Tabled:
    """Fill a server, then start two nodes without entries. Raises :class:`UnusableError` if the server is missing."""
    server = KINDS[kind](folder)
    try:
        show("remote", 0.0, f"{kind}: distant")
        manifest = folder / "job.manifest"
        filled = _run(folder / "filling", server.url, manifest)
        proxy = FaultProxy(server.port, delay_seconds=_DELAY_SECONDS)
        url = server.url.replace(str(server.port), str(proxy.port))
        without = _run(folder / "without", url)
        with_one = _run(folder / "with", url, manifest)
    finally:
        server.kill()
    answers = {"filled": filled, "without": without, "with": with_one}
    is_soon = with_one["seconds"] <= _MOST_SECONDS
    lines = [
        equal("kernels stored", filled["computed"], _KERNELS),
        equal("kernels found by the nodes", 2 * _KERNELS - without["computed"] - with_one["computed"], 2 * _KERNELS),
        equal("wrong bytes", sum(each["wrong"] for each in answers.values()), 0),
        Check("one after the other", f"{without['seconds']:.2f} s"),
        Check("with the job's manifest", f"{with_one['seconds']:.2f} s", f"<= {_MOST_SECONDS:g} s", is_soon),
    ]
    title = f"distant on {kind}: {_KERNELS} kernels, {_DELAY_SECONDS * 1000:g} ms further away"
    return Tabled(f"{kind} distant", title, lines, {"server": kind, "trial": "distant", **answers}, [kind])


def _run(directory: Path, url: str, manifest: Path | None = None) -> dict[str, Any]:
    """Run a program that wants all kernels. Returns its answer."""
    variables = {"LOCKCACHE_REMOTE": url} | ({} if manifest is None else {"LOCKCACHE_MANIFEST": str(manifest)})
    words = [sys.executable, "-c", _PROGRAM, str(directory), str(_KERNELS), str(_BYTES)]
    done = subprocess.run(words, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
