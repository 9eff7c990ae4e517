"""``python -m lockcache_daemon``, for where console scripts are not on the path."""

from lockcache_daemon.cli import main

main()
