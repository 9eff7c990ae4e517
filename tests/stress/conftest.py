"""Tests of the stress program: short runs must get enough done whatever the disk is doing, so they are in memory."""

from tests.in_memory import run_path

__all__ = ["run_path"]
