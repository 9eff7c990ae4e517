# SPDX-License-Identifier: Apache-2.0
"""A call for a key, in parts that a test changes."""

from __future__ import annotations

from typing import Any

import pytest

from lockcache.keys import make_program_cache_key

SOURCE = 'extern "C" __global__ void k(int *a) { *a = 1; }'


def options(**fields: Any) -> Any:
    return pytest.importorskip("cuda.core").ProgramOptions(**{"arch": "sm_90", **fields})


def make(**changes: Any) -> bytes:
    arguments = {"code": SOURCE, "code_type": "c++", "target_type": "cubin", **changes}
    return make_program_cache_key(**{"options": None, **arguments} if "options" in changes else arguments)


def key(**changes: Any) -> bytes:
    return make(**{"options": options(), **changes})
