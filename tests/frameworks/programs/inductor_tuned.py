# SPDX-License-Identifier: Apache-2.0
"""Stores and reads what autotuning chose for a kernel, by Inductor's own classes: without a GPU it tunes nothing.

Each argument is a step, Inductor's directory for it, and what the GPU is called. Prints what it read.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from torch._inductor import codecache, compile_fx  # noqa: F401 - so that the first step may find it
from torch._inductor.runtime.autotune_cache import AutotuneCache
from triton import Config

from lockcache.integrations.inductor import install

META = {"autotune_local_cache": True, "is_fbcode": False}
CONFIGS = [Config({"XBLOCK": 64}, num_warps=warps) for warps in (1, 4)]
gpu = ""


def get_system() -> dict[str, str]:
    if gpu == "broken":
        raise ZeroDivisionError("broken")
    return {"hash": gpu}


codecache.CacheBase.get_system = staticmethod(get_system)
for argument in sys.argv[1:]:
    step, folder, gpu = argument.split("=")
    pickled = Path(folder, "pickled")
    # A compile worker has no adapter, and pickles the object for the process that tunes.
    assert step == "pickle" or install()
    cache = AutotuneCache.create(META, f"{folder}/ab/kernel.py", "configs")
    if step == "pickle":
        pickled.write_bytes(pickle.dumps(cache))
    elif step == "save":
        (pickle.loads(pickled.read_bytes()) if pickled.exists() else cache).save(CONFIGS[1], 1)
    else:
        best = cache.read_best(META, CONFIGS)
        print(best and best.num_warps)
