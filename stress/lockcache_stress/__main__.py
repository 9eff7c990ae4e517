# SPDX-License-Identifier: Apache-2.0
"""``python -m lockcache_stress``, for where console scripts are not on the path."""

from __future__ import annotations

from lockcache_stress.cli import main

# Spawned workers import the main module again, under another name, and must not start a run of their own.
if __name__ == "__main__":
    main()
