# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: asks the cache that Helion made for what was tuned, and stores what it tunes itself.

Tuning needs a GPU. So the autotuner is not run, but what it calls is: Helion's loader, read and write of a back end.
"""

from __future__ import annotations

import sys
import time

import helion  # noqa: F401
from helion.autotuner import remote_cache
from protocol import run

compiled = []
is_installed = "own" not in sys.argv
if is_installed:
    from lockcache.integrations.helion import install

    is_installed = install()


def compile_kernel(number: int) -> bool:
    key = f"{number:064x}"
    backend = remote_cache._load_remote_backend()  # one for each kernel, as RemoteAutotuneCache has
    found = remote_cache._remote_get(backend, key)
    if found is None:
        if number < 0:
            raise RuntimeError("no configuration works")
        compiled.append(number)
        time.sleep(0.05)  # tuning
        found = f'{{"config": "{number}"}}'
        remote_cache._remote_put(backend, key, found)
    return found == f'{{"config": "{number}"}}'


run(compile_kernel, compiled, is_installed)
