# SPDX-License-Identifier: Apache-2.0
"""A program without a line of lockcache: compiles graphs with Inductor, and prints what Inductor found and what not."""

from __future__ import annotations

import json

import torch
from torch._dynamo.utils import counters

torch.manual_seed(7)
for number in range(2):
    torch._dynamo.reset()
    # Only calls of libraries: building a C++ kernel takes 10 s.
    x = torch.randn(number + 2, number + 2, requires_grad=True)
    found = torch.compile(lambda x: x @ x.T @ x, dynamic=False)(x)
    found.sum().backward()
    assert torch.allclose(found, x @ x.T @ x, rtol=1e-3, atol=1e-5)
print(json.dumps({name: found[name] for found in counters.values() for name in found if "_cache_" in name}))
