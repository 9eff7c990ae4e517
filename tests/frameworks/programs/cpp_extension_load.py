# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: loads one extension of files, as its arguments say, and prints what it did as JSON.

``sources=A,B`` ``include=FOLDER`` ``flags=...`` ``ldflags=...`` ``name=...`` ``inline`` ``pch`` ``operators``
``program``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from torch.utils import cpp_extension

stated = dict(word.partition("=")[::2] for word in sys.argv[1:])
if "cuda" in stated:  # torch for the CPU has none: what it would link with is a stand-in
    cpp_extension.CUDA_HOME = stated["cuda"]
options = {
    "name": stated.get("name", "loaded"),
    "extra_cflags": stated.get("flags", "-O1").split(),
    "extra_ldflags": stated.get("ldflags", "").split(),
    "extra_include_paths": [*filter(None, [stated.get("include")])],
}
began = time.monotonic()
if "inline" in stated:
    source = "#include <vector>\nlong compute(long x) { TORCH_CHECK(x > 0); return x * 7; }"
    loaded = cpp_extension.load_inline(cpp_sources=[source], functions=["compute"], use_pch="pch" in stated, **options)
else:
    loaded = cpp_extension.load(
        sources=stated["sources"].split(","),
        is_python_module=not {"operators", "program"} & {*stated},
        is_standalone="program" in stated,
        **options,
    )
seconds = time.monotonic() - began
path = loaded if isinstance(loaded, str) else loaded.__file__
found = {"seconds": seconds, "digest": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
if "program" in stated:
    found["value"] = subprocess.run([path], check=False).returncode
elif hasattr(loaded, "compute"):
    found["value"] = loaded.compute(7)
compiled = Path(os.environ["COMPILED"])
found["compiled"] = compiled.read_text().count("\n") if compiled.exists() else 0
compiled.unlink(missing_ok=True)
print(json.dumps(found))
