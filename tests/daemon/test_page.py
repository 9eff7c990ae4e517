# SPDX-License-Identifier: Apache-2.0
"""The status page: drawn from what the daemon knows, and looked at with a real browser."""

from __future__ import annotations

import re
import struct
import time
import zlib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from lockcache.lowlevel import Slot
from lockcache.reports import Counters
from lockcache_daemon.observe.board import Board, Limits
from lockcache_daemon.observe.charts import draw_bytes, draw_evictions, draw_hit_ratio
from lockcache_daemon.observe.history import Sample
from lockcache_daemon.observe.status_page import render_page
from lockcache_daemon.observe.top_entries import Standout, StandoutsSeen
from tests.daemon.browser import Browser
from tests.daemon.daemon_process import HANG_SECONDS, until
from tests.daemon.http_client import Watched

EVIL = '<script>document.title="run"</script>"\'&amp;'
NOW = 1_800_000_000.0


class Reader(HTMLParser):
    """What a page says, and with which tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_data(self, data: str) -> None:
        self.text += data


def hour(step: float = 15.0) -> tuple[Sample, ...]:
    """Bytes that grow to the cap, evictions in the second half, hits but for the middle."""
    made = []
    for number in range(int(3600 / step)):
        share = number * step / 3600
        seen = number if not 100 < number < 140 else 100
        made.append(
            Sample(
                NOW - 3600 + number * step,
                int(share * 10**9),
                10**9,
                number,
                max(0, number - 120),
                number,
                seen * 9,
                seen,
            )
        )
    return tuple(made)


def test_whatever_a_directory_or_a_program_is_called_is_text() -> None:
    board = Board()
    entry = Standout("0" * 64, 1, 1, 1, EVIL, EVIL, time.time())
    seen = StandoutsSeen((entry,), (entry,), (entry,), 256)
    board.update(EVIL, layout=EVIL, standouts=seen)
    board.failed(EVIL, EVIL)
    board.update("/line\nfeed\x1b[31m\udcff\u202e", is_open=True)
    page = render_page(board)
    read = Reader(page)
    assert read.tags["script"] == 0
    assert read.text.count(EVIL) >= 5
    assert "/line�feed�[31m\\xff�" in read.text
    page.encode()


def test_a_chart_of_bytes_says_what_it_shows_and_draws_the_cap_where_it_was() -> None:
    history = [*hour()[:100], *(each._replace(max_size_bytes=2 * 10**9) for each in hour()[100:])]
    svg = draw_bytes(history, NOW)
    assert "now 995.8 MB of 2.0 GB" in svg
    (cap,) = re.findall(r'class="cap" d="([^"]*)"', svg)
    heights = re.findall(r"(?:V|,)([0-9.]+)", cap)
    assert len(set(heights)) == 2
    assert float(heights[0]) > float(heights[-1])  # SVG counts downwards


def test_evictions_are_bars_by_the_minute() -> None:
    svg = draw_evictions(hour(), NOW)
    assert 28 <= svg.count('class="bar"') <= 31
    assert "119 B, 239 entries" in svg


def test_a_hit_ratio_has_no_line_over_minutes_of_which_nothing_is_known() -> None:
    svg = draw_hit_ratio(hour(), NOW)
    (line,) = re.findall(r'class="line" d="([^"]*)"', svg)
    assert line.count("M") == 2
    assert "over the last hour: 90.0%" in svg


def test_all_budgets_are_named() -> None:
    board = Board()
    board.update("/a", limits=Limits(10**9, 5000, min_free="5%", max_age_seconds=86400 * 30.0))
    board.update("/b", limits=Limits(namespaces={"jax": 10**6}, total_bytes=10**10))
    board.update("/c")
    text = Reader(render_page(board)).text
    words = "limits: at most 1.0 GB; at most 5,000 entries; keep 5% of the disk free; evict after 30 d unused"
    assert words in text
    assert "limits: of jax at most 1.0 MB; all directories together at most 10.0 GB" in text
    assert "limits: none" in text


def test_an_entry_is_called_by_its_label_else_by_its_hash_or_the_end_of_its_path() -> None:
    board, now = Board(), time.time()
    names = {"ab" * 32: "gemm3", "cd" * 32: "", "deep/" * 20 + "kernel.bin": ""}
    entries = tuple(Standout(name, 1, 1, 1, "", "", now, label) for name, label in names.items())
    board.update("/a", standouts=StandoutsSeen(entries, (), (), 256))
    text = Reader(render_page(board)).text
    for shown in ("gemm3", "cdcdcdcdcdcd", "…"):
        assert shown in text
    assert "deep/kernel.bin" in text
    assert "ababababab" not in text


def test_a_page_of_a_thousand_directories_stays_small() -> None:
    board = Board()
    for number in range(1000):
        board.update(f"/{number}", history=hour(), clients=Counters(hits=1), limits=Limits(10**9))
    page = render_page(board)
    assert len(page) < 2_000_000
    assert Reader(page).tags["section"] == 1001  # the overview too


def test_several_directories_have_a_row_each_on_top_and_one_has_none() -> None:
    board = Board()
    board.update(
        "/a", is_open=True, bytes=5 * 10**8, entries=70, clients=Counters(hits=3, misses=1), limits=Limits(10**9)
    )
    assert "overview" not in render_page(board).partition("<body>")[2]
    board.update("/very/" + "deep/" * 10 + "kernels", bytes=10**6)
    page = render_page(board).partition("<body>")[2]
    overview, _, cards = page.partition("</section>")
    assert 'class="overview"' in overview
    assert Reader(overview).tags["tr"] == 3
    for words in ("/a", "500.0 MB of 1.0 GB", "70", "75.0%", "deep/kernels"):
        assert words in Reader(overview).text
    assert [f'href="#d{number}"' in overview and f'id="d{number}"' in cards for number in range(2)] == [True, True]


def test_sums_come_before_the_lists_and_say_that_not_all_is_read() -> None:
    board = Board()
    shown = (Standout("ab" * 32, 1, 1, 1, "", "", time.time(), "gemm"),)
    for seen, words in ((100, True), (256, False)):
        sums = {"namespaces": {"triton": Slot(1000, 3)}, "architectures": {"sm_90": Slot(900, 2)}}
        board.update("/a", **sums, standouts=StandoutsSeen(shown, shown, shown, seen))
        page = render_page(board)
        for sum_of in ("by namespace", "by architecture"):
            assert page.index(sum_of) < page.index("<svg") < page.index("<h3>largest")
            assert (f"{sum_of} (not all read yet)" in page) == words
        assert 'sm_90</td><td class="number">2</td><td class="number">900 B</td>' in page


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_browser_shows_a_running_daemons_page_and_runs_nothing_of_it(tmp_path: Path) -> None:
    browser = Browser(tmp_path / "profile")
    plain, evil = tmp_path / "kernels", tmp_path / "<script>document.title='run'<"
    with FileStreamProgramCache(plain) as cache:
        for number in range(300):
            cost = {"compile_cost_ns": (number + 1) * 10**7, "kind": "cubin", "arch": "sm_90"}
            cache.put_entry(b"%d" % number, Entry(bytes(4000 + number), cost))
        for number in range(290, 300):
            assert cache.get(b"%d" % number) is not None
    with Watched("--max-size", "1M", plain, evil, starts=2) as daemon:
        # It looks at some shards every few seconds: a minute for all of two directories.
        until(lambda: daemon.directory(plain)["standouts"]["shards_seen"] == 256, 5 * HANG_SECONDS)
        until(lambda: daemon.directory(plain)["evicted_entries"] > 0)
        url = f"http://127.0.0.1:{daemon.port}/"
        dom = browser.dom(url)
        read = Reader(dom)
        assert "<title>all well: lockcache-daemon on " in dom
        assert read.tags["script"] == 0
        assert (read.tags["section"], read.tags["svg"], read.tags["table"]) == (3, 6, 8)
        for words in (str(plain), str(evil), "of 1.0 MB", "100.0%", "10 hits, 0 misses", "cubin sm_90"):
            assert words in read.text, words
        most_expensive = entry_name(b"299")[:12]
        assert most_expensive in read.text
        light = browser.screenshot(url, tmp_path / "light.png")
        dark = browser.screenshot(url, tmp_path / "dark.png", dark=True)
    assert _corner(light) > (200, 200, 200)
    assert _corner(dark) < (60, 60, 60)


def _corner(png: bytes) -> tuple[int, int, int]:
    """The colour of a PNG's first pixel, which no filter changes."""
    place, packed, channels = 8, b"", 3
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        if kind == b"IHDR":
            channels = {2: 3, 6: 4}[png[place + 17]]
        if kind == b"IDAT":
            packed += png[place + 8 : place + 8 + length]
        place += 12 + length
    first = zlib.decompress(packed)[1 : 1 + channels]
    return first[0], first[1], first[2]
