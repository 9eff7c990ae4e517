# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: builds extensions with torch, without torch's headers, which take 20 s. They are numbers."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from counted_compiler import Compiled, private

if not {"own", "one-folder"} & {*sys.argv}:  # a folder of its own, as on nodes that share only lockcache
    os.environ["TORCH_EXTENSIONS_DIR"] = str(private / "extensions")
compiled = Compiled()

from protocol import run  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

# Before torch 2.14, and from then on.
name = "FileBaton" if hasattr(cpp_extension, "FileBaton") else "FileLock"
door = getattr(cpp_extension, name)
if "old-door" in sys.argv:
    delattr(cpp_extension, name)

from lockcache.integrations.cpp_extension import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
if "old-door" in sys.argv:
    setattr(cpp_extension, name, door)

SOURCE = """
#include <Python.h>
#define NAMED(name) PyInit_##name
#define INIT(name) NAMED(name)
static PyObject *compute(PyObject *, PyObject *x) { return PyLong_FromLong(PyLong_AsLong(x) * %d); }
static PyMethodDef methods[] = {{"compute", compute, METH_O, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "extension", "", -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
digests = []


def compile_kernel(number: int) -> bool:
    source = SOURCE % (number + 2) if number >= 0 else "#error this is not C++"
    flags = os.environ.get("FLAGS", "").split()
    built = cpp_extension.load_inline(
        f"extension{number}".replace("-", "_"), [source], extra_cflags=["-O1", *flags], no_implicit_headers=True
    )
    digests.append(hashlib.sha256(Path(built.__file__).read_bytes()).hexdigest())
    return built.compute(7) == 7 * (number + 2)


run(compile_kernel, compiled, is_installed)
