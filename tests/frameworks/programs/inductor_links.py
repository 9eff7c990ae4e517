# SPDX-License-Identifier: Apache-2.0
"""Asks Inductor's own code whether it finds a kernel that Triton has on lockcache: its static launcher's look-up."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import triton
import triton.language as tl
from torch._inductor.runtime.runtime_utils import triton_hash_to_path_key
from torch._inductor.runtime.triton_heuristics import StaticTritonCompileResult, triton_cache_dir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def kernel(p, constant: tl.constexpr):
    tl.store(p, constant)


source = ASTSource(fn=kernel, signature={"p": "*i32", "constant": "constexpr"}, constexprs={(1,): int(sys.argv[1])})
found = triton.compile(source, target=GPUTarget("cuda", 90, 32))
path = os.path.join(triton_cache_dir(0), triton_hash_to_path_key(found.hash))
cubin = f"{path}/kernel.cubin"
static = StaticTritonCompileResult.can_statically_launch(found, {}, {"device": 0, "device_type": "cuda"}, None)
said = {
    "is_link": os.path.islink(path),
    "is_whole": os.path.exists(cubin) and Path(cubin).read_bytes() == found.asm["cubin"],
    "cubin_path": getattr(found, "_cubin_path", None) == cubin,
    "is_static": static is not None,
}
print(json.dumps(said))
