# SPDX-License-Identifier: Apache-2.0
"""A child that reads requests, and never answers."""

from __future__ import annotations

import sys
import threading

if __name__ == "__main__":
    sys.stdin.readline()
    threading.Event().wait()
