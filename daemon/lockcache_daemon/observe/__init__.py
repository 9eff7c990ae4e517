# SPDX-License-Identifier: Apache-2.0
"""Observation: the log, the status page, metrics, and the board that they are made from.

Promises that nothing here changes a directory or holds up a tick, and that text from outside is escaped.

May use: errors, throttle, settings.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.observe.board import Board, Limits, Repairs, Summary, Sweep, shown
    from lockcache_daemon.observe.compiled_again import CompiledAgain
    from lockcache_daemon.observe.http_server import WebServer
    from lockcache_daemon.observe.log import LogToReport, Report, UnreportedRepairs, readable
    from lockcache_daemon.observe.metrics import Metrics
    from lockcache_daemon.observe.metrics_file import MetricsFile
    from lockcache_daemon.observe.page_style import PAGE_STYLE
    from lockcache_daemon.observe.top_entries import Standouts, in_shards, in_walks
else:
    __getattr__, __dir__ = door(__name__)
