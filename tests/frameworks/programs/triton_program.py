# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles with Triton and ptxas, which need no device, and builds launchers in C."""

from __future__ import annotations

import sys

import triton
import triton.language as tl
from protocol import run
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import build, cache

#: Numbers from this one on are launchers.
LAUNCHERS = 1000

compiled = []
_make_ir, _build = ASTSource.make_ir, build._build


def _counted_ir(*args, **options):
    compiled.append(1)
    return _make_ir(*args, **options)


def _counted_build(*args, **options):
    compiled.append(1)
    return _build(*args, **options)


ASTSource.make_ir, build._build = _counted_ir, _counted_build
if "old-door" in sys.argv:
    cache.CacheManager.__abstractmethods__ |= {"evict"}

if "by-variable" in sys.argv:  # a variable installs the adapter, without a line of code
    is_installed = True
else:
    from lockcache.integrations.triton import install

    is_installed = "own" not in sys.argv and install()


@triton.jit
def kernel(p, constant: tl.constexpr):
    at = tl.program_id(0)
    tl.store(p + at, tl.load(p + at) * 3 + constant)


@triton.jit
def fails(p, constant: tl.constexpr):
    tl.store(p, no_such_name + constant)  # noqa: F821


def compile_kernel(number: int) -> bool:
    if number >= LAUNCHERS:
        return _build_launcher(number)
    constant = abs(number) * 7919 + 100_003
    source = _source(fails if number < 0 else kernel, constant)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return all(str(constant) in found.asm[stage] for stage in ("ttir", "llir", "ptx")) and len(found.asm["cubin"]) > 500


def _source(function, constant: int) -> ASTSource:
    if triton.__version__.startswith("3.2"):
        return ASTSource(fn=function, signature={"p": "*i32"}, constants={"constant": constant})
    return ASTSource(fn=function, signature={"p": "*i32", "constant": "constexpr"}, constexprs={(1,): constant})


def _build_launcher(number: int) -> bool:
    source = f"""
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) {{ return PyLong_FromLong({number}); }}
static PyMethodDef methods[] = {{{{"answer", answer, METH_NOARGS, ""}}, {{NULL, NULL, 0, NULL}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "launcher", NULL, -1, methods}};
PyMODINIT_FUNC PyInit_launcher(void) {{ return PyModule_Create(&module); }}
"""
    module = build.compile_module_from_src(src=source, name="launcher")
    return module.answer() == number


if __name__ == "__main__":
    run(compile_kernel, compiled, is_installed)
