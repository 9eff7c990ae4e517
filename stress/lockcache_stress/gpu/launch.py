"""With a GPU: load what the cache gave, launch it, and compare the numbers. Without one: nothing here is imported.

Only programs for the device's own architecture can be loaded.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lockcache_stress.gpu.kernels import LAUNCHED

__all__ = ["Launcher", "find_arch"]


def find_arch() -> str | None:
    """The first GPU's architecture as ``sm_90``, or ``None`` where there is no GPU, driver or cuda.core."""
    try:
        from cuda.core import Device

        device = Device(0)
        device.set_current()
        capability = device.compute_capability
    except Exception:  # noqa: BLE001  no driver, no device, no package: each has an error type of its own, and all mean no GPU
        return None
    return f"sm_{capability[0]}{capability[1]}"


class Launcher:
    """Runs kernels ``run(unsigned* out, unsigned n)`` on the first GPU."""

    def __init__(self) -> None:
        from cuda.core import Device

        self._device: Any = Device(0)
        self._device.set_current()
        self._stream: Any = self._device.create_stream()
        self._buffer: Any = self._device.allocate(4 * LAUNCHED, stream=self._stream)

    def launch(self, cubin: bytes) -> list[int]:
        """What the kernel in ``cubin`` computes."""
        from cuda.core import LaunchConfig, ObjectCode, launch

        kernel = ObjectCode.from_cubin(cubin).get_kernel("run")
        config = LaunchConfig(grid=1, block=LAUNCHED)
        launch(self._stream, config, kernel, self._buffer, ctypes.c_uint32(LAUNCHED))
        self._stream.sync()
        return self._read()

    def _read(self) -> list[int]:
        from cuda.bindings import driver

        numbers = (ctypes.c_uint32 * LAUNCHED)()
        result = driver.cuMemcpyDtoH(ctypes.addressof(numbers), int(self._buffer.handle), ctypes.sizeof(numbers))[0]
        if int(result) != 0:
            raise RuntimeError(f"the result could not be copied from the GPU: {result}")
        return list(numbers)
