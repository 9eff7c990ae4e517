# SPDX-License-Identifier: Apache-2.0
"""The protocol of a program: it reports that it is ready, waits for a line, compiles, and prints the result as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable


def _processor_seconds() -> float:
    """Returns those of this process, and of the programs that it ran to their ends."""
    return sum(os.times()[:4])


def run(compile_kernel: Callable[[int], bool], compiled: list[int], is_installed: bool) -> None:
    compiled.clear()  # forgets what the framework compiled at its start
    print("ready", flush=True)
    kernels = json.loads(sys.stdin.readline())
    found: dict[str, object] = {"wrong": 0, "failed": 0}
    kept = []
    if "failing" in sys.argv:
        from failing import compile_with_failures

        print(json.dumps(compile_with_failures(compile_kernel, kernels)), flush=True)
        return
    began, work = time.monotonic(), _processor_seconds()
    for number in kernels:
        try:
            if not compile_kernel(number):
                found["wrong"] += 1
        except Exception as error:  # noqa: BLE001 - the test hears of it
            found["failed"] += 1
            if "keep-errors" in sys.argv:
                kept.append(error)
            found["error"] = f"{type(error).__name__}: {error}"[:300]
    found |= {"digests": digests} if (digests := getattr(sys.modules["__main__"], "digests", None)) else {}
    found |= {"compiled": len(compiled), "is_installed": is_installed}
    found |= {"seconds": time.monotonic() - began, "processor_seconds": _processor_seconds() - work}
    print(json.dumps(found), flush=True)
    sys.stdin.readline()  # keeps the process alive, like a server
