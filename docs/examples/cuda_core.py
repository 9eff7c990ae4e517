# SPDX-License-Identifier: Apache-2.0
"""cuda.core: compile a kernel with a CUDA header once for all processes and starts, and launch it where a GPU is."""

from __future__ import annotations

import ctypes

from cuda.core import Device, LaunchConfig, ProgramOptions, launch
from cuda.pathfinder import find_nvidia_header_directory

from lockcache import FileStreamProgramCache
from lockcache.cuda import Program

SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void scale(__half *x, float a) {
  x[threadIdx.x] = __float2half(a * __half2float(x[threadIdx.x]));
}
"""


def find_gpu() -> Device | None:
    """Returns the first GPU; nothing without one, or without its driver."""
    try:
        device = Device()
        device.set_current()
    except Exception:  # each of no driver, no library and no device is an error of another type
        return None
    return device


def main() -> None:
    device = find_gpu()
    # With an arch, compiling asks no driver; without a GPU it is that of the machine that will launch the kernel.
    arch = f"sm_{device.arch}" if device else "sm_90"
    options = ProgramOptions(arch=arch, include_path=find_nvidia_header_directory("cudart"))
    with FileStreamProgramCache() as cache:  # in $LOCKCACHE_DIR, else in ~/.cache/lockcache
        code = Program(SOURCE, "c++", options).compile("cubin", cache=cache)
        print(f"{'compiled' if cache.stats().puts else 'found'} {len(code.code)} bytes for {arch}")
    if device:
        stream = device.create_stream()
        x = device.allocate(2 * 32, stream=stream)
        launch(stream, LaunchConfig(grid=1, block=32), code.get_kernel("scale"), x, ctypes.c_float(2.0))
        stream.sync()
        print(f"launched on {device.name}")


if __name__ == "__main__":
    main()
