"""With a GPU: loads what the cache gave, launches it, and reads what it computed; and links, which needs no GPU.

All that touches the device is here. Only programs for the device's own architecture can be loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from lockcache_stress.gpu.kernels import LAUNCHED

__all__ = ["Launcher", "find_arch", "find_name", "link_cubin"]

_NOT_COMPUTED: Final = 0xA5


def find_arch() -> str | None:
    """The first GPU's architecture as ``sm_90``, or ``None`` where there is no GPU, driver or cuda.core."""
    device = _find_device()
    return None if device is None else "sm_{}{}".format(*device.compute_capability)


def find_name() -> str | None:
    """The first GPU's name, or ``None`` where :func:`find_arch` finds none."""
    device = _find_device()
    return None if device is None else str(device.name)


def _find_device() -> Any:
    try:
        from cuda.core import Device

        device = Device(0)
        device.set_current()
    except Exception:  # noqa: BLE001  no driver, no device, no package: each has an error type of its own, and all mean no GPU
        return None
    return device


def link_cubin(units: Sequence[Any], arch: str) -> Any:
    """Returns the cubin, as an ``ObjectCode``, that LTO-IR is linked to."""
    from cuda.core import Linker, LinkerOptions

    linker = Linker(*units, options=LinkerOptions(arch=arch, link_time_optimization=True))
    try:
        return linker.link("cubin")
    finally:
        linker.close()


class Launcher:
    """Runs kernels ``run(unsigned* out, unsigned n)`` on the first GPU."""

    def __init__(self) -> None:
        from cuda.core import Device

        self._device: Any = Device(0)
        self._device.set_current()
        self._stream: Any = self._device.create_stream()
        self._buffer: Any = self._device.allocate(4 * LAUNCHED, stream=self._stream)

    def launch(self, cubin: bytes) -> list[int]:
        """Returns what the kernel in ``cubin`` computes."""
        from cuda.core import ObjectCode

        return self.run(self.load(ObjectCode.from_cubin(cubin)))

    def load(self, code: Any, name: str = "run") -> Any:
        """Returns a kernel of the ``ObjectCode``, ready to launch for as long as it is held: its module is loaded."""
        return code.get_kernel(name)

    def run(self, kernel: Any) -> list[int]:
        """Returns what a loaded kernel computes."""
        from cuda.core import LaunchConfig, launch

        self._buffer.fill(_NOT_COMPUTED, stream=self._stream)  # of a kernel that does nothing no older result is read
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
