# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ sources of the NVRTC scenario and of the GPU kit, and the results of their kernels, computed in Python.

The scenario has three families of kernels, whose sizes and compile times vary independently: recursive templates (3 to
7 KB of code; 25 to 130 ms), unrolled loops (5 to 30 KB; 25 to 130 ms) and constexpr tables, half filled by the compiler
(100 to 500 KB; 40 to 130 ms). A KB of code takes some 4 ms to compile, a KB of a table 0.25 ms: larger cubins of code
alone would make every miss a second. The kit, which uses ``lockcache.cuda``, has templates, and pairs of units to link.

Every kernel takes ``(unsigned* out, unsigned n)`` and computes ``out[i] = f(i)`` for :data:`LAUNCHED` elements, in
32-bit integers, so that a launch can be checked exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

#: The targets without a GPU: each gives another key and other bytes.
ARCHS: Final = ("sm_80", "sm_90", "sm_100", "sm_120")
#: The number of elements that a launch computes.
LAUNCHED: Final = 64

_MASK: Final = 0xFFFFFFFF
_LONG_MASK: Final = 0xFFFFFFFFFFFFFFFF
_VARIANTS: Final = 3

_CHAIN: Final = """
template<unsigned N> struct Chain {
  static __device__ __forceinline__ unsigned run(unsigned x) {
    return Chain<N - 1>::run((x ^ (x >> 7)) * 2654435761u + N);
  }
};
template<> struct Chain<0> { static __device__ __forceinline__ unsigned run(unsigned x) { return x; } };
extern "C" __global__ void run(unsigned* out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Chain<SIZE>::run(i + SALT);
}
"""

_UNROLLED: Final = """
extern "C" __global__ void run(unsigned* out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = i + SALT;
#pragma unroll
  for (unsigned r = 0; r < SIZE; ++r) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; x += 0x9e3779b9u * r; }
  if (i < n) out[i] = x;
}
"""

_TABLE: Final = """
template<unsigned S, unsigned N> struct Table {
  unsigned long long v[N];
  __device__ constexpr Table() : v() {
    unsigned long long x = S;
    for (unsigned i = 0; i < N / 2; ++i) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; v[i] = x; }
  }
};
__device__ constexpr Table<SALT | 1u, SIZE> table;
extern "C" __global__ void run(unsigned* out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long x = table.v[i * 2654435761u % SIZE];
  if (i < n) out[i] = (unsigned)(x ^ (x >> 32));
}
"""
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
class Kernel:
    """One source, in one or more variants that compute different numbers."""

    family: str
    size: int
    salt: int

    def source(self, variant: int) -> str:
        """Returns the translation unit. Variants stand for a source that was changed under the same key."""
        defines = f"#define SIZE {self.size}u\n#define SALT {self._salt(variant)}u\n"
        return defines + _FAMILIES[self.family][0]

    def expected(self, variant: int) -> list[int]:
        """Returns the right result of a launch over :data:`LAUNCHED` elements."""
        compute = _FAMILIES[self.family][1](self.size, self._salt(variant))
        return [compute(i) for i in range(LAUNCHED)]

    def _salt(self, variant: int) -> int:
        return self.salt + variant * 7919


@dataclass(frozen=True)
class Slot:
    """One cache key: a kernel for one target, with so many legal contents."""

    kernel: Kernel
    arch: str
    variants: int


def make_slots(kernels: int, seed: int, archs: tuple[str, ...]) -> list[Slot]:
    """Returns ``kernels`` kernels for each of ``archs``, most popular first; every fourth has several variants."""
    rng = random.Random(f"{seed}/kernels")
    made = [_make_kernel(number, rng) for number in range(kernels)]
    slots = [
        Slot(kernel, arch, _VARIANTS if number % 4 == 0 else 1) for number, kernel in enumerate(made) for arch in archs
    ]
    rng.shuffle(slots)
    return slots


def _make_kernel(number: int, rng: random.Random) -> Kernel:
    # Of eight kernels, one has recursion, one has unrolled loops and six have tables; those with variants (0, 4) are
    # small.
    salt = rng.randrange(1, 2**31)
    position = number % 8
    if position == 0:
        return Kernel("chain", rng.randrange(4, 180), salt)
    if position == 4:
        return Kernel("unrolled", rng.randrange(10, 240), salt)
    return Kernel("table", rng.randrange(12_000, 62_000), salt)


def _chain(size: int, salt: int) -> Callable[[int], int]:
    def compute(i: int) -> int:
        x = (i + salt) & _MASK
        for n in range(size, 0, -1):
            x = ((x ^ (x >> 7)) * 2654435761 + n) & _MASK
        return x

    return compute


def _shift(x: int) -> int:
    x ^= (x << 13) & _MASK
    x ^= x >> 17
    return x ^ ((x << 5) & _MASK)


def _unrolled(size: int, salt: int) -> Callable[[int], int]:
    def compute(i: int) -> int:
        x = (i + salt) & _MASK
        for r in range(size):
            x = (_shift(x) + 0x9E3779B9 * r) & _MASK
        return x

    return compute


def _table(size: int, salt: int) -> Callable[[int], int]:
    values, x = [0] * size, salt | 1
    for index in range(size // 2):
        x ^= x << 13 & _LONG_MASK
        x ^= x >> 7
        x ^= x << 17 & _LONG_MASK
        values[index] = x
    return partial(_look_up, values)


def _look_up(values: list[int], i: int) -> int:
    x = values[(i * 2654435761 & _MASK) % len(values)]
    return (x ^ x >> 32) & _MASK


_FAMILIES: Final[dict[str, tuple[str, Callable[[int, int], Callable[[int], int]]]]] = {
    "chain": (_CHAIN, _chain),
    "unrolled": (_UNROLLED, _unrolled),
    "table": (_TABLE, _table),
}


@dataclass(frozen=True)
class Template:
    """A source of which several instances are asked for by name."""

    source: str
    salt: int

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the name expressions."""
        return tuple(f"run<unsigned, {factor}>" for factor in _FACTORS)

    def expected(self, name: str) -> list[int]:
        """Returns the right result of the instance ``name``."""
        factor = _FACTORS[self.names.index(name)]
        return [((i + self.salt) * factor & _MASK) ^ (i >> 3) for i in range(LAUNCHED)]


@dataclass(frozen=True)
class Pair:
    """Two units, of which the second calls into the first: LTO-IR to be linked. Its kernel is ``run``."""

    sources: tuple[str, str]
    salts: tuple[int, int]

    def expected(self) -> list[int]:
        """Returns the right result of the linked kernel."""
        inner, outer = self.salts
        inputs = [(i + outer) & _MASK for i in range(LAUNCHED)]
        return [((x ^ (x >> 7)) * 2654435761 + inner) & _MASK for x in inputs]


def make_templates(count: int, seed: int, token: str) -> list[Template]:
    """Returns ``count`` templates. ``token`` distinguishes the keys of runs in one directory."""
    rng = random.Random(f"{seed}/templates")
    salts = [rng.randrange(2**31) for _ in range(count)]
    return [Template(_TEMPLATE.format(token=token, salt=salt), salt) for salt in salts]


def make_pairs(count: int, seed: int, token: str) -> list[Pair]:
    """Returns ``count`` pairs. ``token`` distinguishes the keys of runs in one directory."""
    rng = random.Random(f"{seed}/pairs")
    salts = [(rng.randrange(2**31), rng.randrange(2**31)) for _ in range(count)]
    return [
        Pair((_STEP.format(token=token, salt=inner), _CALLER.format(token=token, salt=outer)), (inner, outer))
        for inner, outer in salts
    ]


def program_options(arch: str, *, linked: bool = False) -> Any:
    """Returns the options of the kernels; ``linked``: for LTO-IR, which is empty without ``link_time_optimization``."""
    from cuda.core import ProgramOptions

    if linked:
        return ProgramOptions(arch=arch, std="c++17", link_time_optimization=True, relocatable_device_code=True)
    return ProgramOptions(arch=arch, std="c++17")


def find_runtime_headers() -> list[str]:
    """Returns the directories of the CUDA runtime's headers; none where they are not installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    return [folder] if folder else []


def compile_uncached(source: str, options: Any, target: str = "cubin") -> Any:
    """Returns the program as an ``ObjectCode``, compiled by cuda.core without any cache."""
    from cuda.core import Program

    program = Program(source, "c++", options)
    try:
        return program.compile(target)
    finally:
        program.close()
