# SPDX-License-Identifier: Apache-2.0
"""A C++ compiler that counts what it compiles, for programs that have ninja build libraries."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

private = Path(tempfile.mkdtemp())


class Compiled:
    """Counts what the C++ compiler of this process compiled, as a list of it would."""

    def __init__(self) -> None:
        # One compiler for all processes, because ninja looks at its path.
        compiler, self._log = private.with_name("g++"), private / "compiled"
        (private / "g++").write_text(
            '#!/bin/sh\ncase "$*" in *" -c "*) echo >> "$COMPILED"\n'
            '[ -z "$COMPILER_WAITS_FOR" ] || cat "$COMPILER_WAITS_FOR" > /dev/null;; esac\n'
            f'exec {shutil.which("g++")} "$@"\n'
        )
        (private / "g++").chmod(0o755)
        os.replace(private / "g++", compiler)
        os.environ["COMPILED"] = str(self._log)
        if "plain" not in sys.argv:  # the compiler itself, whose calls nobody counts
            os.environ["CXX"] = str(compiler)

    def clear(self) -> None:
        self._log.write_text("")

    def __len__(self) -> int:
        return len(self._log.read_text())
