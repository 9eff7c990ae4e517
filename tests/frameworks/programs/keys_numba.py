# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernel of a project in the working directory with numba-cuda, and prints what came out of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys

from numba import cuda, types
from numba_stub import compiled

sys.path.insert(0, ".")
if sys.argv[1] == "shared":
    from lockcache.integrations.numba import install

    assert install()
import kernel

texts = []
for command in sys.argv[2:]:
    if command == "compile":
        signature = (types.int64[:],)
        kernel.kernel.compile(signature)
        texts.append(kernel.kernel.inspect_asm(signature))
    elif command == "load":
        cuda.compile_ptx(lambda: None, (), cc=(9, 0))
        compiled.clear()
    elif command.startswith("set "):
        os.environ.update([command[4:].split("=", 1)])
    elif command == "clear":
        kernel.kernel.recompile()
numbers = {int(number) for text in texts for number in re.findall(r"\b\d{4,}\b", text)}
digest = hashlib.sha256("".join(texts).encode()).hexdigest()
numbers = sorted(each for each in numbers if each % 1000 == 1)
print(json.dumps({"compiled": len(compiled), "numbers": numbers, "digest": digest}))
