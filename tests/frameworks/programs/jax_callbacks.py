# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: 0 calls back into Python, and is never stored by JAX; 1 is a program that JAX stores."""

from __future__ import annotations

import os

import jax
import numpy as np
from jax._src import compiler
from protocol import run

from lockcache.integrations.adapter import installed
from lockcache.integrations.jax import install

compiled = []
turns = []
# In JAX 0.4 it has another name.
_name = "backend_compile_and_load" if hasattr(compiler, "backend_compile_and_load") else "backend_compile"
_compile = getattr(compiler, _name)


def _counted(*args, **options):
    """Note the number of turns for which other processes wait meanwhile."""
    leases = f"{installed('jax').cache.path}/lockcache/leases"
    turns.append(len(os.listdir(leases)) if os.path.isdir(leases) else 0)
    compiled.append(1)
    return _compile(*args, **options)


setattr(compiler, _name, _counted)
is_installed = install()


def _prints(x):
    jax.debug.print("{}", x)
    return x * 2


def compile_kernel(number: int) -> bool:
    turns.clear()
    function = (_prints, lambda x: x * 3)[number]
    jax.jit(function).lower(np.ones(3, np.float32)).compile()
    return turns in ([number], [])  # no turn after a hit


run(compile_kernel, compiled, is_installed)
