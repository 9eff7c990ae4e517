# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the function of a project in the working directory with JAX, and prints its result."""

from __future__ import annotations

import json
import os
import sys

import jax
import numpy as np
from jax._src import compiler

sys.path.insert(0, ".")
compiled = []
# In JAX 0.4 it has another name.
_name = "backend_compile_and_load" if hasattr(compiler, "backend_compile_and_load") else "backend_compile"
_compile = getattr(compiler, _name)


def _counted(*args, **options):
    compiled.append(1)
    return _compile(*args, **options)


setattr(compiler, _name, _counted)
if sys.argv[1] == "shared":
    from lockcache.integrations.jax import install

    assert install()
import kernel  # noqa: E402

numbers = set()
for command in sys.argv[2:]:
    if command == "compile":
        function = jax.jit(kernel.kernel, compiler_options=kernel.OPTIONS)
        numbers |= {int(each) for each in np.asarray(function(np.zeros(4, np.int32)))}
    elif command == "two-devices":
        places = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
        jax.jit(kernel.kernel, in_shardings=places).lower(np.zeros(4, np.int32)).compile()
    elif command == "load":
        jax.jit(lambda x: x * 2)(np.zeros(3, np.int32))
        compiled.clear()
    elif command.startswith("set "):
        os.environ.update([command[4:].split("=", 1)])
    elif command == "clear":
        jax.clear_caches()
print(json.dumps({"compiled": len(compiled), "numbers": sorted(numbers - {0})}))
