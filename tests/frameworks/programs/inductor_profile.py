# SPDX-License-Identifier: Apache-2.0
"""A program without a line of lockcache: prints how often it compiled a function that it calls with two sizes."""

from __future__ import annotations

import torch
from torch._dynamo.utils import counters

compiled = torch.compile(lambda x: x @ x.T)
for size in (4, 5):
    x = torch.ones(size, size)
    assert torch.equal(compiled(x), x @ x.T)
print(counters["stats"]["unique_graphs"])
