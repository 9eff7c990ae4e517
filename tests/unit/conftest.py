"""Unit tests: what they write is in memory."""

from tests.in_memory import run_path, tmp_path

__all__ = ["run_path", "tmp_path"]
