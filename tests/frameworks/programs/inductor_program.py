# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles FX graphs with Inductor, for the CPU. The graphs are numbers."""

from __future__ import annotations

import os
import sys
import tempfile

if "own" not in sys.argv:  # each process has a directory of its own, as on nodes that share only lockcache
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()

import torch
from protocol import run
from torch._functorch import config as autograd_config
from torch._inductor import compile_fx, config, cpp_builder

compiled = []
_compile = compile_fx.fx_codegen_and_compile
_door = compile_fx._compile_fx_inner


def _counted(*args, **options):
    compiled.append(1)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # some passes of Inductor's have a barrier
    return _compile(*args, **options)


compile_fx.fx_codegen_and_compile = _counted
if "old-door" in sys.argv:
    del compile_fx._compile_fx_inner

if "old-builder" in sys.argv:
    _describe = cpp_builder.__dict__.pop("get_compiler_version_info")

from lockcache.integrations.inductor import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
compile_fx.__dict__.setdefault("_compile_fx_inner", _door)
if "old-builder" in sys.argv:
    cpp_builder.get_compiler_version_info = _describe
if "RANKS_AGREE" in os.environ:
    autograd_config._sync_decision_cross_ranks = True
torch.manual_seed(7)
if "RANK" in os.environ:
    place, rank = os.environ["RANKS_MEET_AT"], int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=2)


def compile_kernel(number: int) -> bool:
    torch._dynamo.reset()
    if number < 0:  # a graph that needs a C++ compiler
        with config.patch({"cpp.cxx": ("/no/such/compiler",)}):
            torch.compile(lambda x: x.sin() * number)(torch.ones(8))
    if "with-kernel" in sys.argv:
        x = torch.ones(64)
        return torch.allclose(torch.compile(lambda x: x.sin() * number)(x), x.sin() * number)
    # Only calls of libraries, because building a C++ kernel takes 10 s.
    x = torch.randn(number + 2, number + 2, requires_grad="with-gradient" in sys.argv)
    found = torch.compile(lambda x: x @ x.T @ x, dynamic=False)(x)
    if x.requires_grad:
        found.sum().backward()
    return torch.allclose(found, x @ x.T @ x, rtol=1e-3, atol=1e-5)


run(compile_kernel, compiled, is_installed)
