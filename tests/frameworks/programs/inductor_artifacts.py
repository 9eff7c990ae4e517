# SPDX-License-Identifier: Apache-2.0
"""A user's program that keeps all artifacts of torch.compile as one entry, and prints what Inductor found of them."""

from __future__ import annotations

import json
import sys

import torch
from torch._dynamo.utils import counters

import lockcache

cache = lockcache.FileStreamProgramCache(sys.argv[1])
artifacts = cache.get("my-model/1")
if artifacts is not None:
    torch.compiler.load_cache_artifacts(artifacts)

x = torch.ones(3, 3)
assert torch.equal(torch.compile(lambda x: x @ x.T @ x)(x), x @ x.T @ x)

saved = torch.compiler.save_cache_artifacts()
if artifacts is None and saved is not None:
    cache["my-model/1"] = saved[0]
print(json.dumps({name: found[name] for found in counters.values() for name in found if name.startswith("fxgraph_ca")}))
