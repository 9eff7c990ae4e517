"""The herd: many processes want the same templated kernels at once, and each kernel is compiled once.

``sources`` writes real CUDA C++ with real headers, ``member`` is one process, ``running`` starts them all and compares,
``outcome`` says what must hold.
"""

from lockcache_stress.herd.outcome import HerdOutcome
from lockcache_stress.herd.plan import HerdOptions
from lockcache_stress.herd.running import run_herd

__all__ = ["HerdOptions", "HerdOutcome", "run_herd"]
