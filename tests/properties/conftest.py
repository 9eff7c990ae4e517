# SPDX-License-Identifier: Apache-2.0
"""Property tests, whose files are in memory."""

from tests.in_memory import run_path, tmp_path

__all__ = ["run_path", "tmp_path"]
