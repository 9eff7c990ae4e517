"""What the daemon answers over HTTP, by path: made from the board, in memory, at most once a second each.

Keeps a client that asks without end from costing more than one that asks now and then. Nothing of a request but its
path and its ``Accept`` header is looked at, and nothing of it reaches a disk.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from lockcache import __version__
from lockcache_daemon.board import Board, DirectoryView, shown
from lockcache_daemon.metrics import Metrics
from lockcache_daemon.page import render_page

__all__ = ["Answer", "Answers"]

_FRESH_SECONDS: Final = 1.0
# The formats of /metrics that clients can ask for are a few; who asks for more kinds has them made each time.
_MOST_KEPT: Final = 16


class Answer(NamedTuple):
    """What is sent back."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Answers:
    """For one thread. :meth:`to` raises nothing that a request could cause."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._metrics = Metrics(board)
        self._kept: dict[tuple[str, str], tuple[float, Answer]] = {}
        self._pages: dict[str, Callable[[str], Answer]] = {
            "/": self._page,
            "/metrics": self._scrape,
            "/healthz": self._health,
            "/status.json": self._status,
        }

    def to(self, path: str, accept: str) -> Answer:
        """The answer to GET of ``path``."""
        make = self._pages.get(path)
        if make is None:
            known = ", ".join(self._pages)
            return Answer(HTTPStatus.NOT_FOUND, _PLAIN, f"nothing here; there is: {known}\n".encode())
        now, key = time.monotonic(), (path, accept if path == "/metrics" else "")
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < _FRESH_SECONDS:
            return kept[1]
        answer = make(accept)
        if key in self._kept or len(self._kept) < _MOST_KEPT:
            self._kept[key] = (now, answer)
        return answer

    def _page(self, accept: str) -> Answer:
        return Answer(HTTPStatus.OK, "text/html; charset=utf-8", render_page(self._board).encode())

    def _scrape(self, accept: str) -> Answer:
        body, content_type = self._metrics.negotiated(accept)
        return Answer(HTTPStatus.OK, content_type, body)

    def _health(self, accept: str) -> Answer:
        problems = self._board.problems()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        states = [{"directory": shown(view.root), "state": _state(view)} for view in self._board.directories]
        body = {"status": "problems" if problems else "ok", "problems": list(map(shown, problems))}
        silent = round(self._board.silent_seconds, 3)
        return Answer(status, _JSON, _encoded({**body, "last_tick_age_seconds": silent, "directories": states}))

    def _status(self, accept: str) -> Answer:
        board = self._board
        about = {"version": __version__, "host": socket.gethostname(), "pid": board.pid, "since": board.started}
        found = {**about, "problems": list(map(shown, board.problems())), "warnings": board.warnings}
        views = [_described(view) for view in board.directories]
        return Answer(HTTPStatus.OK, _JSON, _encoded({**found, "directories": views}))


_JSON: Final = "application/json"
_PLAIN: Final = "text/plain; charset=utf-8"


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _state(view: DirectoryView) -> str:
    if view.problem is not None:
        return "problem"
    return "standby" if view.is_standby else "kept" if view.is_open else "opening"


def _described(view: DirectoryView) -> dict[str, Any]:
    """A view in plain types, with names instead of places."""
    body = {**vars(view), "root": shown(view.root), "state": _state(view), "limits": asdict(view.limits)}
    body["problem"] = None if view.problem is None else shown(view.problem)
    body["clients"] = {**view.clients._asdict(), "hit_ratio": view.clients.hit_ratio}
    seen = view.standouts
    lists = {"largest": seen.largest, "oldest": seen.oldest, "dearest": seen.dearest}
    body["standouts"] = {name: [each._asdict() for each in entries] for name, entries in lists.items()}
    body["standouts"]["shards_seen"] = seen.shards_seen
    body["history"] = [sample._asdict() for sample in view.history]
    return body
