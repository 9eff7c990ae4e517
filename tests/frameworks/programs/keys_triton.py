# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernel of a project in the working directory with Triton, and prints what came out of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, ".")
compiled = []
_make_ir = ASTSource.make_ir


def _counted(*args, **options):
    compiled.append(1)
    return _make_ir(*args, **options)


ASTSource.make_ir = _counted
if sys.argv[1] == "shared":
    from lockcache.integrations.triton import install

    assert install()
import kernel  # noqa: E402


def _compile(function):
    return triton.compile(ASTSource(function, {"p": "*i32"}), target=GPUTarget("cuda", 90, 32), options=kernel.OPTIONS)


numbers, digest = set(), ""
for command in sys.argv[2:]:
    if command == "compile":
        found = _compile(kernel.kernel)
        digest = hashlib.sha256(found.asm["ptx"].encode()).hexdigest()
        numbers |= {int(number) for number in re.findall(r"\b\d{4,}\b", found.asm["ttir"])}
        numbers.add(found.metadata.num_warps * 1000 + 1)
    elif command == "load":
        _compile(kernel.helper.other)
        compiled.clear()
    elif command.startswith("set "):
        os.environ.update([command[4:].split("=", 1)])
numbers = sorted(each for each in numbers if each % 1000 == 1)
print(json.dumps({"compiled": len(compiled), "numbers": numbers, "digest": digest}))
