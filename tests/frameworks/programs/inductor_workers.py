# SPDX-License-Identifier: Apache-2.0
"""A program without a line of lockcache: prints the hook and the adapters of this process and of a compile worker."""

from __future__ import annotations

import json
import sys


def look() -> dict[str, object]:
    """Returns what there is of lockcache in the process that calls this."""
    adapter = sys.modules.get("lockcache.integrations.adapter.installing")
    hooks = [finder for finder in sys.meta_path if type(finder).__name__ == "_Installer"]
    return {"hooks": len(hooks), "adapters": sorted(adapter._installed) if adapter else []}


if __name__ == "__main__":
    import inductor_workers
    import torch._inductor.compile_fx  # noqa: F401 - what Inductor is adapted by
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    config.compile_threads = 2
    AsyncCompile.warm_pool()
    pool = AsyncCompile.process_pool()
    print(json.dumps([look(), pool.submit(inductor_workers.look).result(timeout=120)]))
