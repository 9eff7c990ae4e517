"""``python -m lockcache``, for where console scripts are not on the path."""

from lockcache.cli import main

main()
