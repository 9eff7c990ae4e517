# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles and runs with Warp on the CPU. The kernels are numbers, each a module."""

from __future__ import annotations

import sys

import warp as wp
from protocol import run
from warp._src import build, context

wp.config.log_level = wp.LOG_ERROR  # Warp logs to stdout
wp.config.verify_autograd_array_access = "verify" in sys.argv
wp.config.cache_kernels = "uncached" not in sys.argv
wp.init()
compiled = []
_build = build.build_cpu


def _counted(*args, **options):
    compiled.append(1)
    return _build(*args, **options)


build.build_cpu = _counted
if "old-door" in sys.argv:
    _compile = context.Module._compile

    def _changed(self, *arguments, **options):
        return _compile(self, *arguments, **options)

    context.Module._compile = _changed

from lockcache.integrations.warp import install  # noqa: E402

is_installed = "own" not in sys.argv and install()


def compile_kernel(number: int) -> bool:
    constant = float(number)

    @wp.kernel(module="unique")
    def kernel(out: wp.array(dtype=wp.float32)):
        out[wp.tid()] = wp.static(constant)

    @wp.kernel(module="unique")
    def fails(out: wp.array(dtype=wp.float32)):
        out[wp.tid()] = no_such_name  # noqa: F821

    out = wp.zeros(4, dtype=wp.float32, device="cpu")
    wp.launch(kernel if number >= 0 else fails, dim=4, inputs=[out], device="cpu")
    return bool((out.numpy() == constant).all())


run(compile_kernel, compiled, is_installed)
