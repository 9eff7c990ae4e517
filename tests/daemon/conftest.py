# SPDX-License-Identifier: Apache-2.0
"""Tests of the daemon: keepers that are closed at the end."""

from tests.daemon.keepers import keep

__all__ = ["keep"]
