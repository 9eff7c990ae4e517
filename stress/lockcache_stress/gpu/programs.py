"""Programs of the GPU kit, through ``lockcache.cuda``: templates, and pairs of units to link; and what they compute.

Every kernel takes ``(unsigned* out, unsigned n)`` and computes :data:`~.kernels.LAUNCHED` unsigned integers, so that a
launch can be checked exactly, as those of :mod:`.kernels`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from lockcache_stress.gpu.kernels import LAUNCHED

__all__ = ["Pair", "Template", "compile_uncached", "make_pairs", "make_templates", "program_options"]

_MASK: Final = 0xFFFFFFFF
_FACTORS: Final = (3, 5, 7)

_TEMPLATE: Final = """// {token}
template<typename T, unsigned N> __global__ void run(T* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (T(i) + {salt}u) * N ^ (i >> 3);
}}
"""
_STEP: Final = """// {token}
extern "C" __device__ unsigned step(unsigned x) {{ return (x ^ (x >> 7)) * 2654435761u + {salt}u; }}
"""
_CALLER: Final = """// {token}
extern "C" __device__ unsigned step(unsigned x);
extern "C" __global__ void run(unsigned* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = step(i + {salt}u);
}}
"""


@dataclass(frozen=True)
class Template:
    """A source of which several instances are asked for by name."""

    source: str
    salt: int

    @property
    def names(self) -> tuple[str, ...]:
        """The name expressions."""
        return tuple(f"run<unsigned, {factor}>" for factor in _FACTORS)

    def expected(self, name: str) -> list[int]:
        """Returns what the instance ``name`` computes."""
        factor = _FACTORS[self.names.index(name)]
        return [((i + self.salt) * factor & _MASK) ^ (i >> 3) for i in range(LAUNCHED)]


@dataclass(frozen=True)
class Pair:
    """Two units, of which the second calls into the first: LTO-IR to be linked. Its kernel is ``run``."""

    sources: tuple[str, str]
    salts: tuple[int, int]

    def expected(self) -> list[int]:
        """Returns what the linked kernel computes."""
        inner, outer = self.salts
        inputs = [(i + outer) & _MASK for i in range(LAUNCHED)]
        return [((x ^ (x >> 7)) * 2654435761 + inner) & _MASK for x in inputs]


def make_templates(count: int, seed: int, token: str) -> list[Template]:
    """Returns ``count`` templates. ``token`` keeps runs in one directory apart."""
    rng = random.Random(f"{seed}/templates")
    salts = [rng.randrange(2**31) for _ in range(count)]
    return [Template(_TEMPLATE.format(token=token, salt=salt), salt) for salt in salts]


def make_pairs(count: int, seed: int, token: str) -> list[Pair]:
    """Returns ``count`` pairs. ``token`` keeps runs in one directory apart."""
    rng = random.Random(f"{seed}/pairs")
    salts = [(rng.randrange(2**31), rng.randrange(2**31)) for _ in range(count)]
    return [
        Pair((_STEP.format(token=token, salt=inner), _CALLER.format(token=token, salt=outer)), (inner, outer))
        for inner, outer in salts
    ]


def program_options(arch: str, *, linked: bool = False) -> Any:
    """How they are compiled; ``linked``: to LTO-IR, which is empty without ``link_time_optimization``."""
    from cuda.core import ProgramOptions

    if linked:
        return ProgramOptions(arch=arch, std="c++17", link_time_optimization=True, relocatable_device_code=True)
    return ProgramOptions(arch=arch, std="c++17")


def compile_uncached(source: str, options: Any, target: str = "cubin") -> Any:
    """Returns the program as an ``ObjectCode``, compiled by cuda.core without any cache."""
    from cuda.core import Program

    program = Program(source, "c++", options)
    try:
        return program.compile(target)
    finally:
        program.close()
