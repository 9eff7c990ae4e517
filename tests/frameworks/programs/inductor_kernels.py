# SPDX-License-Identifier: Apache-2.0
"""A program without a line of lockcache: compiles C++ kernels with Inductor, and prints what Inductor found.

And how many processes Inductor started to try whether a library can be loaded.
"""

from __future__ import annotations

import ctypes
import json
import sys

import torch
from torch._dynamo.utils import counters
from torch._inductor.cpu_vec_isa import VecISA

tries = []
sys.addaudithook(lambda event, given: tries.append(1) if event == "subprocess.Popen" and "cdll" in str(given) else None)
if "nothing-loads" in sys.argv:  # as where a library lacks what it needs, which its trial finds out
    _own = ctypes.CDLL.__init__

    def _refuse(self, name, *args, **options):
        if sys._getframe(1).f_code.co_name == "_is_loaded":
            raise OSError(name)
        _own(self, name, *args, **options)

    ctypes.CDLL.__init__ = _refuse

torch.manual_seed(7)
x = torch.randn(8, 64, requires_grad=True)
found = torch.compile(lambda x: torch.nn.functional.gelu(x).sum(), dynamic=False)(x)
found.backward()
assert torch.allclose(found, torch.nn.functional.gelu(x).sum(), rtol=1e-3)
said = {
    name: found[name] for found in counters.values() for name in found if name.endswith(("cache_hit", "cache_miss"))
}
said |= {"tries": len(tries), "tries_again": not hasattr(VecISA, "_probe_load")}
print(json.dumps({**said, "gradient": round(float(x.grad.sum()), 3)}))
