# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles with JAX, and counts the compilations by XLA. The kernels are numbers."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import compiler
from protocol import run

compiled = []
# In JAX 0.4 it has another name.
_name = "backend_compile_and_load" if hasattr(compiler, "backend_compile_and_load") else "backend_compile"
_compile = getattr(compiler, _name)


def _counted(*args, **options):
    found = _compile(*args, **options)
    compiled.append(1)
    return found


setattr(compiler, _name, _counted)
_door = compiler.compile_or_get_cached
if "old-door" in sys.argv:
    del compiler.compile_or_get_cached

from lockcache.integrations.jax import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
compiler.compile_or_get_cached = compiler.__dict__.get("compile_or_get_cached", _door)


def compile_kernel(number: int) -> bool:
    if number < 0:  # two arrays that do not fit, which XLA refuses
        shape = jax.ShapeDtypeStruct((8,), jnp.float32)
        options = {"xla_no_such_option": True}
        jax.jit(jnp.sin).lower(shape).compile(compiler_options=options)
    function = jax.jit(lambda x: jnp.sin(x) * number + x @ x.T)
    x = np.ones((number + 2, number + 2), np.float32)
    found = np.asarray(function.lower(x).compile()(x))
    return np.allclose(found, np.sin(1.0) * number + number + 2, rtol=1e-3)


run(compile_kernel, compiled, is_installed)
