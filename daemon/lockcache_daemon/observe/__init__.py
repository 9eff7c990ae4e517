"""Observation: the log, the status page, metrics, and the board that they are made from.

Promises that nothing here changes a directory or holds up a tick, and that text from outside is escaped.

May use: errors, throttle, settings.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.observe.board import *
    from lockcache_daemon.observe.compiled_again import *
    from lockcache_daemon.observe.http_server import *
    from lockcache_daemon.observe.log import *
    from lockcache_daemon.observe.metrics import *
    from lockcache_daemon.observe.metrics_file import *
    from lockcache_daemon.observe.page_style import *
    from lockcache_daemon.observe.top_entries import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "http_server": "WebServer",
            "log": "LogToReport Report UnreportedRepairs readable",
            "metrics": "Metrics",
            "metrics_file": "MetricsFile",
            "page_style": "PAGE_STYLE",
            "board": "Board Limits Repairs Summary Sweep shown",
            "compiled_again": "CompiledAgain",
            "top_entries": "Standouts in_shards in_walks",
        },
    )
