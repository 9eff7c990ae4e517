# SPDX-License-Identifier: Apache-2.0
"""``python -m lockcache_daemon``, for where console scripts are not on the path."""

from lockcache_daemon.cli import main

main()
