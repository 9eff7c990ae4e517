# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: calls a function of CuTe DSL, which has it compiled, and compiles one for TVM's interface."""

from __future__ import annotations

import contextlib
import json

import cutlass
from cute_kernels import host
from cutlass import cute

from lockcache.integrations.cute import install

compiled = []
provider = cutlass.cutlass_dsl.CuTeDSL._get_dsl().compiler_provider
_manager = provider.passmanager


class _Counting:
    class PassManager:
        @staticmethod
        def parse(pipeline: str) -> object:
            compiled.append(1)
            return _manager.PassManager.parse(pipeline)


provider.passmanager = _Counting
assert install()
with contextlib.suppress(Exception):  # it is compiled, and cannot be run without a GPU
    host(cutlass.Int32(1), 6)
function = cute.compile(host, cutlass.Int32(1), 5, options="--enable-tvm-ffi")
print(json.dumps({"compiled": len(compiled), "has_ffi": "tvm_ffi" in str(function.ir_module)}))
