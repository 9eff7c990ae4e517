"""A program of a user's: builds extensions with torch, without torch's headers, which take 20 s. They are numbers."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

private = Path(tempfile.mkdtemp())
if not {"own", "one-folder"} & {*sys.argv}:  # a folder of its own, as on nodes that share only lockcache
    os.environ["TORCH_EXTENSIONS_DIR"] = str(private / "extensions")


class Compiled:
    """Counts what the C++ compiler of this process compiled, as a list of it would."""

    def __init__(self) -> None:
        # One compiler for all processes, because ninja looks at its path.
        compiler, self._log = private.with_name("g++"), private / "compiled"
        (private / "g++").write_text(
            '#!/bin/sh\ncase "$*" in *" -c "*) echo >> "$COMPILED"\n'
            '[ -z "$COMPILER_WAITS_FOR" ] || cat "$COMPILER_WAITS_FOR" > /dev/null;; esac\n'
            f'exec {shutil.which("g++")} "$@"\n'
        )
        (private / "g++").chmod(0o755)
        os.replace(private / "g++", compiler)
        os.environ["COMPILED"] = str(self._log)
        if "plain" not in sys.argv:  # the compiler itself, whose calls nobody counts
            os.environ["CXX"] = str(compiler)

    def clear(self) -> None:
        self._log.write_text("")

    def __len__(self) -> int:
        return len(self._log.read_text())


compiled = Compiled()

from protocol import run  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

door = cpp_extension.FileBaton
if "old-door" in sys.argv:
    del cpp_extension.FileBaton

from lockcache.integrations.cpp_extension import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
cpp_extension.FileBaton = door if "old-door" in sys.argv else cpp_extension.FileBaton

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
