# SPDX-License-Identifier: Apache-2.0
"""``python -m lockcache``, for where console scripts are not on the path."""

from lockcache.cli import main

main()
