# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles with CuTe DSL for sm_90a, and exports what it compiled as an object file."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from types import SimpleNamespace

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass
import cutlass.base_dsl.compiler
from cute_kernels import host
from cutlass import cute
from protocol import run

compiled = []
provider = cutlass.cutlass_dsl.CuTeDSL._get_dsl().compiler_provider
_parse = provider.passmanager.PassManager.parse


def _counted(pipeline: str) -> object:
    compiled.append(1)
    return _parse(pipeline)


provider.passmanager = SimpleNamespace(PassManager=SimpleNamespace(parse=_counted))
if "old-door" in sys.argv:
    del cutlass.base_dsl.compile_backend.dump_cache_to_path  # of calls alone, and not of cute.compile

from lockcache.integrations.cute import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
digests = []


def compile_kernel(number: int) -> bool:
    options = "--ptxas-options='--no-such-option'" if number < 0 else os.environ.get("OPTIONS", "")
    function = cute.compile(host, cutlass.Int32(1), abs(number) + 1, options=options)
    with tempfile.TemporaryDirectory() as folder:
        function.export_to_c(file_path=folder, file_name="kernel", function_prefix="kernel")
        with open(os.path.join(folder, "kernel.o"), "rb") as file:
            code = file.read()
    digests.append(hashlib.sha256(code).hexdigest())
    return len(code) > 500


run(compile_kernel, compiled, is_installed)
