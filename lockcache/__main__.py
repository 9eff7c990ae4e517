"""``python -m lockcache``, for where console scripts are not on the path."""

from __future__ import annotations

from lockcache.cli import main

main()
