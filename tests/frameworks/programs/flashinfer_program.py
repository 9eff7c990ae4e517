# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: has FlashInfer build libraries. They are numbers, and of C++, which needs no GPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from counted_compiler import Compiled, private

if not {"own", "one-folder"} & {*sys.argv}:  # a folder of its own, as on nodes that share only lockcache
    os.environ["FLASHINFER_WORKSPACE_BASE"] = str(private)
os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "9.0a"
os.environ["FLASHINFER_LOGGING_LEVEL"] = "error"
compiled = Compiled()


def make_stand_ins() -> str:
    """Returns a folder with a toolkit whose nvcc says its version alone, and libraries that are empty.

    FlashInfer links with them, and without a GPU there is no driver's library. They are the same for all processes.
    """
    toolkit = private.with_name("toolkit")
    if not toolkit.exists():
        made = private / "toolkit"
        for folder in ("bin", "include", "lib64"):
            (made / folder).mkdir(parents=True)
        (made / "bin/nvcc").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        (made / "bin/nvcc").chmod(0o755)
        for name in ("cuda", "cudart"):
            command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", made / f"lib64/lib{name}.so"]
            subprocess.run(command, input="", text=True, check=True)
        try:
            made.rename(toolkit)
        except OSError:  # another process has made it
            shutil.rmtree(made)
    return str(toolkit)


stand_ins = make_stand_ins()
os.environ.setdefault("CUDA_HOME", stand_ins)
os.environ["FLASHINFER_EXTRA_LDFLAGS"] = f"-L{stand_ins}/lib64"
# The loader reads it when a process starts.
if "LD_LIBRARY_PATH" not in os.environ:
    os.environ["LD_LIBRARY_PATH"] = f"{stand_ins}/lib64:{os.environ['CUDA_HOME']}/lib64"
    os.execv(sys.executable, [sys.executable, *sys.argv])

from flashinfer.jit import core, env  # noqa: E402
from protocol import run  # noqa: E402

door = core.run_ninja
if "old-door" in sys.argv:
    del core.run_ninja

from lockcache.integrations.flashinfer import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
if "old-door" in sys.argv:
    core.run_ninja = door

SOURCE = """
#include <flashinfer/exception.h>
#include <tvm/ffi/c_api.h>
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_compute(void *, const TVMFFIAny *args, int32_t, TVMFFIAny *result) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = args[0].v_int64 * %d;
  return 0;
}
"""
digests = []


def compile_kernel(number: int) -> bool:
    name = f"kernel{number}".replace("-", "_")
    source = env.FLASHINFER_GEN_SRC_DIR / name / ("main.cu" if "cuda" in sys.argv else "main.cc")
    text = SOURCE % (number + 2) if number >= 0 else "#error this is not C++"
    if not source.exists():
        source.parent.mkdir(parents=True, exist_ok=True)
        (private / "source").write_text(text)
        os.replace(private / "source", source)
    spec = core.gen_jit_spec(name, [source], extra_cflags=os.environ.get("FLAGS", "-O1").split())
    built = spec.build_and_load()
    digests.append(hashlib.sha256(Path(spec.get_library_path()).read_bytes()).hexdigest())
    return built.compute(7) == 7 * (number + 2)


run(compile_kernel, compiled, is_installed)
