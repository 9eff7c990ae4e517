# SPDX-License-Identifier: Apache-2.0
"""The libfuse that serves file systems: version 3, whatever else is installed.

What is installed is a fake of ``find_library``: a machine has either both versions or not. Each case is a process of
its own, because mfusepy loads one library, once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library

import pytest

PROGRAM = """
import ctypes.util, os, sys
installed = dict(each.split("=") for each in sys.argv[1:])
ctypes.util.find_library = installed.get
from lockcache_stress.trouble import load_mfusepy
try:
    print(load_mfusepy().fuse_version_major)
except OSError as error:
    print(error)
"""
pytestmark = pytest.mark.slow

# Stands for libfuse 2: mfusepy, which asks each library for its version, would fail with it.
NO_LIBFUSE = "libc.so.6"
LIBFUSE_3 = find_library("fuse3")


def taken(*installed: str, path: str = "") -> str:
    """Returns the version that is taken, or why none is. ``path``: what ``$FUSE_LIBRARY_PATH`` says."""
    command = [sys.executable, "-c", PROGRAM, *installed]
    environment = {**os.environ, "FUSE_LIBRARY_PATH": path}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(LIBFUSE_3 is None, reason="needs libfuse 3 (Debian: fuse3)")
def test_version_3_is_taken_alone_and_next_to_version_2() -> None:
    assert taken(f"fuse3={LIBFUSE_3}") == "3"
    assert taken(f"fuse={NO_LIBFUSE}", f"fuse3={LIBFUSE_3}") == "3"


@pytest.mark.parametrize("installed", [(), (f"fuse={NO_LIBFUSE}",)], ids=["none", "version 2"])
def test_without_version_3_none_is_taken(installed: tuple[str, ...]) -> None:
    assert taken(*installed) == "libfuse 3 is not installed"
