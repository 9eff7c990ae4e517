# SPDX-License-Identifier: Apache-2.0
"""Tests of the stress program, in memory, so that short runs do enough on a machine with a busy disk."""

from tests.in_memory import run_path

__all__ = ["run_path"]
