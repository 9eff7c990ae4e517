# SPDX-License-Identifier: Apache-2.0
"""Results of autotuning on lockcache: Inductor's own file of a kernel comes first, and lockcache behind it."""

from __future__ import annotations

import os
from typing import Any

from lockcache.integrations.adapter import Shared
from lockcache.integrations.inductor.values import state_cost_ns

__all__ = ["share_tuned"]


def share_tuned(shared: Shared, tuned: Any, get_system: Any) -> None:
    """Have ``tuned``, Inductor's store of such files, read what others stored, and store what it writes.

    By its methods, and not by a back end, which each object keeps: compile workers make the objects, without this
    adapter, and the process that tunes gets them pickled.
    """
    own_get, own_put = tuned._backend_get, tuned._backend_put

    def name_of(file: str) -> str:
        # The file's name is a hash of the kernel's source; the system's hash is of the GPU's name and Triton.
        return f"autotune/{get_system()['hash']}/{os.path.basename(file)}"

    def get(self: Any, file: str) -> Any:
        found = own_get(self, file)
        if not found and not shared.has_failed:
            with shared.never_raising():
                found = shared.look(name_of(file))
        return found

    def put(self: Any, file: str, data: bytes) -> None:
        own_put(self, file, data)
        if not shared.has_failed:
            with shared.never_raising():
                shared.store(name_of(file), data, compile_cost_ns=max(state_cost_ns(data), 1))

    tuned._backend_get, tuned._backend_put = get, put
