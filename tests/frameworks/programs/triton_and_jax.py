# SPDX-License-Identifier: Apache-2.0
"""A program of a user's that compiles with Triton and with JAX, with no line about caches in it."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import triton
import triton.language as tl
from jax._src import compiler
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

compiled = {"jax": 0, "triton": 0}
_backend_compile, _make_ir = compiler.backend_compile_and_load, ASTSource.make_ir


def _counted_program(*args, **options):
    compiled["jax"] += 1
    return _backend_compile(*args, **options)


def _counted_kernel(*args, **options):
    compiled["triton"] += 1
    return _make_ir(*args, **options)


compiler.backend_compile_and_load, ASTSource.make_ir = _counted_program, _counted_kernel


@triton.jit
def add(p, constant: tl.constexpr):
    at = tl.program_id(0)
    tl.store(p + at, tl.load(p + at) + constant)


for constant in (7919, 7927, 7933):
    source = ASTSource(fn=add, signature={"p": "*i32", "constant": "constexpr"}, constexprs={(1,): constant})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert str(constant) in kernel.asm["ptx"]
for size in (3, 5):
    x = np.ones((size, size), np.float32)
    assert np.allclose(jax.jit(lambda x: jnp.sin(x) + x @ x)(x), np.sin(1.0) + size)
print(json.dumps(compiled))
