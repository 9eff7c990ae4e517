# SPDX-License-Identifier: Apache-2.0
"""Output of real compilers: its first bytes, its ELF tables, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda

cuda_core = pytest.importorskip("cuda.core")

from cuda.bindings import nvrtc  # noqa: E402
from cuda.core import ProgramOptions  # noqa: E402

from lockcache import FileStreamProgramCache, InMemoryProgramCache  # noqa: E402
from lockcache.artifact import identify  # noqa: E402
from lockcache.cli.payload_contents import read_code  # noqa: E402
from lockcache.cuda import Program  # noqa: E402
from lockcache.keys.versions import nvrtc_release  # noqa: E402

SOURCE = """
template <typename T> __global__ void fill(T *p, T v) { p[threadIdx.x] = v; }
__device__ __noinline__ float twice(float x) { return x * 2; }
extern "C" __global__ void scale(float *x) {
    __shared__ float s[256];
    s[threadIdx.x] = twice(x[threadIdx.x]);
    __syncthreads();
    x[threadIdx.x] = s[255 - threadIdx.x];
}
"""


def cubin(arch: str) -> bytes:
    compiled = cuda_core.Program(SOURCE, "c++", ProgramOptions(arch=arch)).compile(
        "cubin", name_expressions=("fill<int>",)
    )
    return bytes(compiled.code)


def ptx() -> bytes:
    _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"x.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"])[0] == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_90a", "sm_100", "sm_100f"])
def test_a_cubin_tells_architecture_compiler_and_kernels(arch: str) -> None:
    code = read_code(cubin(arch))
    assert (code["kind"], code["arch"]) == ("cubin", arch)
    assert code["compiler"].startswith(f"cuda {nvrtc_release()}")
    fill, scale = code["kernels"]
    assert (fill["name"], scale["name"]) == ("_Z4fillIiEvPT_S0_", "scale")
    assert fill["shared_bytes"] == 0
    assert scale["shared_bytes"] >= 1024
    assert all(kernel["registers"] > 0 and kernel["code_bytes"] > 0 for kernel in code["kernels"])
    assert all(kernel["stack_bytes"] == 0 for kernel in code["kernels"])


def test_ptx_tells_version_target_address_size_and_entries() -> None:
    code = read_code(ptx())
    assert (code["kind"], code["arch"], code["target"], code["address_size"]) == ("ptx", "sm_90", "sm_90", 64)
    assert code["entries"] == ["scale"]
    assert code["ptx_version"]
    assert code["compiler"].startswith(f"cuda {nvrtc_release()}")


def test_lto_ir_is_recognised() -> None:
    options = ProgramOptions(arch="sm_90", link_time_optimization=True)
    assert identify(bytes(cuda_core.Program(SOURCE, "c++", options).compile("ltoir").code)).kind == "ltoir"


@pytest.mark.parametrize("target", ["cubin", "ltoir"])
def test_a_program_records_kind_architecture_and_compiler(target: str, cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        options = ProgramOptions(arch="sm_90a", link_time_optimization=True if target == "ltoir" else None)
        Program(SOURCE, "c++", options).compile(target, cache=cache)
        [file] = (cache_path / "entries").glob("*/*")
    from lockcache.filestream.disk.layout import Layout
    from lockcache.filestream.inspect.describe import describe_entry, find_entry

    layout = Layout(str(cache_path))
    found = find_entry(layout, file.parent.name + file.name)
    assert found is not None
    described = describe_entry(layout, found)
    assert described is not None
    assert (described.kind, described.arch) == (target, "sm_90a")
    assert (described.compiler or "").startswith(f"nvrtc {nvrtc_release()}")
    assert described.cost_ns


def test_what_the_unmodified_cuda_core_stores_is_recorded_with_architecture_and_compiler() -> None:
    cache = InMemoryProgramCache()
    cache["k"] = cuda_core.Program(SOURCE, "c++", ProgramOptions(arch="sm_100a")).compile("cubin")
    entry = cache.get_entry("k")
    assert entry is not None
    assert (entry.metadata["kind"], entry.metadata["arch"]) == ("cubin", "sm_100a")
    assert entry.metadata["compiler"].startswith(f"cuda {nvrtc_release()}")
