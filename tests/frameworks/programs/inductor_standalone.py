# SPDX-License-Identifier: Apache-2.0
"""A user's program that compiles as vLLM does: one graph, by ``standalone_compile``, as one artifact or in parts."""

from __future__ import annotations

import os
import sys
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()

import torch
from protocol import run
from torch._inductor import compile_fx, standalone_compile

from lockcache.integrations.inductor import install

compiled = []
_compile = compile_fx.fx_codegen_and_compile


def _counted(*args, **options):
    compiled.append(1)
    if "fails" in sys.argv:
        raise ZeroDivisionError("a graph that cannot be compiled")
    return _compile(*args, **options)


compile_fx.fx_codegen_and_compile = _counted
is_installed = install()


def _backend(graph, inputs):
    aot = "aot" in sys.argv
    return standalone_compile(graph, inputs, dynamic_shapes="from_graph", options={"config_patches": {}}, aot=aot)


def compile_kernel(number: int) -> bool:
    torch._dynamo.reset()
    x = torch.randn(number + 2, number + 2)
    with torch.no_grad():
        found = torch.compile(lambda x: x @ x.T @ x, backend=_backend, dynamic=False, fullgraph=True)(x)
    return torch.allclose(found, x @ x.T @ x, rtol=1e-3, atol=1e-5)


run(compile_kernel, compiled, is_installed)
