"""What a framework is here: how its kernels are run from its own directory, and when it cannot be had.

Kernel number k computes ``i * (k + 3) + 1009 * k`` for i in 0 to 63: small numbers, so that every integer type does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Protocol

from lockcache_stress.gpu import find_version, is_older

__all__ = ["ELEMENTS", "KERNELS", "ON_GPU", "Framework", "Kernels", "expected", "factor_and_salt"]

#: Kernels that the directory is filled with; the cap is half of what they take.
KERNELS: Final = 24
#: Elements that each computes.
ELEMENTS: Final = 64
#: The place of what is launched.
ON_GPU: Final = "the GPU"


class Kernels(Protocol):
    """A framework in one process, with its cache in the directory that it was opened for."""

    #: On what it computes.
    place: str

    def forget(self) -> None:
        """Drops what the process remembers, so that the next use asks the directory."""
        ...

    def run(self, number: int) -> list[int]:
        """Returns what the kernel ``number`` computed."""
        ...


@dataclass(frozen=True)
class Framework:
    """One framework."""

    name: str
    #: Of ``lockcache-daemon --layout``.
    layout: str
    #: What is imported.
    modules: tuple[str, ...]
    #: Older ones do not do what is relied on here.
    least: tuple[int, int]
    needs_gpu: bool
    #: Opens it for a directory, in a process that uses it.
    open: Callable[[str], Kernels]
    #: Names of errors that it is known to raise when an entry goes while it is being read; others must not be.
    may_raise: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """The name of its row."""
        return self.name.lower()

    def why_not(self, gpu_arch: str | None) -> str | None:
        """Why it cannot be run here; ``None`` if it can."""
        version = find_version(self.name)
        if version is None:
            return f"{self.name} is not installed"
        if is_older(version, self.least):
            return f"{self.name} {version} is too old: {'.'.join(map(str, self.least))} is needed"
        missing = [module for module in self.modules if find_spec(module) is None]
        if missing:
            return f"{self.name} needs {', '.join(missing)} here, which is not installed"
        return "no GPU" if self.needs_gpu and gpu_arch is None else None


def factor_and_salt(number: int) -> tuple[int, int]:
    """Returns what makes kernel ``number`` another than the others."""
    return number + 3, 1009 * number


def expected(number: int) -> list[int]:
    """Returns what kernel ``number`` computes."""
    factor, salt = factor_and_salt(number)
    return [i * factor + salt for i in range(ELEMENTS)]
