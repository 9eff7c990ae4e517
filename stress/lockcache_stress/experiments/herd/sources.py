"""Templated CUDA C++ with headers that include each other: what cuda.core's own caching refuses.

A source reaches four headers: by ``include_path``, by quotes next to the including header, upwards out of a folder, and
by a macro of ``config.h`` that decides what every kernel computes. Changing that one digit changes all code.
"""

from __future__ import annotations

import os
import random
from typing import Any, Final, NamedTuple

from lockcache_stress.experiments.herd.plan import HerdPlan

__all__ = ["HerdKernel", "make_kernels", "program_options", "write_headers"]

_ARCH: Final = "sm_80"

_HEADERS: Final = {
    "herd/kernel.h": '#pragma once\n#include "detail/chain.h"\n',
    "herd/detail/chain.h": """#pragma once
#include "../config.h"
#include "mix.h"
namespace herd {
template<typename T, unsigned N> struct Chain {
  static __device__ __forceinline__ T run(T x) { return Chain<T, N - 1>::run(mix<T>(x) * HERD_FACTOR + N); }
};
template<typename T> struct Chain<T, 0> { static __device__ __forceinline__ T run(T x) { return x; } };
}
""",
    "herd/detail/mix.h": """#pragma once
namespace herd {
template<typename T> __device__ __forceinline__ T mix(T x) { return (x ^ (x >> 7)) * T(2654435761u); }
}
""",
    "herd/config.h": "#pragma once\n#define HERD_FACTOR {factor}u\n",
}

_SOURCE: Final = """// {token}
#include <herd/kernel.h>
template<typename T, unsigned N> __global__ void run(T* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = herd::Chain<T, N>::run(T(i) + {salt}u);
}}
"""

# One digit each: the change keeps the header's size, and is found all the same.
_FACTORS: Final = (3, 5)


class HerdKernel(NamedTuple):
    """One program: a source and the templates to instantiate."""

    source: str
    name_expressions: tuple[str, ...]


def write_headers(plan: HerdPlan, phase: int) -> None:
    """Write the headers as they are in ``phase``, in place, as an editor may: they change once, after the first."""
    for name, text in _HEADERS.items():
        path = os.path.join(plan.include, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        wanted = text.replace("{factor}", str(_FACTORS[min(phase, 1)]))
        if not _holds(path, wanted):
            with open(path, "w") as file:
                file.write(wanted)


def make_kernels(plan: HerdPlan) -> list[HerdKernel]:
    """The kernels, drawn from the seed; some 100 to 300 ms of compiling each."""
    rng = random.Random(f"{plan.options.seed}/herd")
    return [_make_kernel(plan.token, rng) for _ in range(plan.options.kernels)]


def program_options(plan: HerdPlan) -> Any:
    """How they are compiled."""
    from cuda.core import ProgramOptions

    return ProgramOptions(arch=_ARCH, std="c++17", include_path=[plan.include], name="herd.cu")


def _make_kernel(token: str, rng: random.Random) -> HerdKernel:
    source = _SOURCE.format(token=token, salt=rng.randrange(2**31))
    size = rng.randrange(60, 160)
    return HerdKernel(source, (f"run<unsigned, {size}>", f"run<unsigned long long, {size // 2}>"))


def _holds(path: str, text: str) -> bool:
    try:
        with open(path) as file:
            return file.read() == text
    except FileNotFoundError:
        return False
