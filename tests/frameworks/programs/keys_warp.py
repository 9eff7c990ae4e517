# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the kernel of a project in the working directory with Warp, on the CPU, and prints its result."""

from __future__ import annotations

import hashlib
import json
import os
import sys

import warp as wp
from warp._src import build

sys.path.insert(0, ".")
wp.config.log_level = wp.LOG_ERROR  # Warp logs to stdout
wp.init()
compiled = []
_build = build.build_cpu


def _counted(*args, **options):
    compiled.append(1)
    return _build(*args, **options)


build.build_cpu = _counted
_build_cuda = build.build_cuda


def _counted_cuda(*args, **options):
    compiled.append(1)
    return _build_cuda(*args, **options)


build.build_cuda = _counted_cuda


def _compile_for_a_gpu(module):
    """Returns a digest of PTX, compiled as for a launch."""
    options = module.resolve_options(wp.config)
    folder, name = os.path.join(wp.config.kernel_cache_dir, module.get_module_identifier()), "kernel.ptx"
    module._compile(None, folder, name, 90, True, options)
    with open(os.path.join(folder, name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


if sys.argv[1] == "shared":
    from lockcache.integrations.warp import install

    assert install()
numbers, digest = set(), ""
for command in sys.argv[2:]:
    if command == "compile":
        import kernel

        out = wp.zeros(4, dtype=wp.int32, device="cpu")
        wp.launch(kernel.kernel, dim=1, inputs=[out], device="cpu")
        numbers |= {int(each) for each in out.numpy()}
    elif command == "cuda":
        import kernel

        digest = _compile_for_a_gpu(kernel.kernel.module)
    elif command.startswith("set "):
        os.environ.update([command[4:].split("=", 1)])
    elif command == "clear":
        wp.clear_kernel_cache()
    elif command == "no-cache":
        wp.config.cache_kernels = False
print(json.dumps({"compiled": len(compiled), "numbers": sorted(numbers - {0}), "digest": digest}))
