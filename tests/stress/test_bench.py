# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs, prints what must hold next to what is, and fails where it does not hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.entry.locate import Prices
from lockcache.filestream.entry.reader import EntryReader
from lockcache.filestream.eviction.evict import all_entries
from lockcache_stress.bench import daemon_million as million, measurements as bench, peers
from lockcache_stress.bench.base import Bar, Bench, Line, ratio_line
from lockcache_stress.commands import scenarios
from tests.docs.pages import load_script
from tests.matrix_sampling import EXHAUSTIVE
from tests.stress.support import stress, stress_json


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_quick_run_measures_everything_and_names_the_machine(run_path: Path) -> None:
    ran = stress("bench", "--quick", "--no-fail", "--json", run_path=run_path, timeout=280)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert {"cpu", "kernel", "python", "file system", "lockcache"} <= set(report["machine"])
    bars = {line["bar"] for line in report["lines"]}
    assert {"<= 2x", "<= 1.5x", "< 50 ms", "0", "<= 1 x cap", "< 1 %", "< 2,000 ms"} <= bars
    others = [line["others"] for line in report["lines"] if line["name"].startswith(("3 processes x", "4 processes x"))]
    assert ["diskcache" in each for each in others[:2]] == [True, True]
    damage = [line for line in report["lines"] if line["name"].startswith("damaged entries served")]
    assert len(damage) == 5
    assert all(line["ok"] for line in damage)
    # The documents find a figure by its line's name. Not these: of a disk that may be mounted, and of full sizes.
    figures = load_script("figures")
    found = {name for name in figures.ROWS if figures.Run(report).cells(name)}
    assert found >= set(figures.ROWS) - {"put", "put-used", "put-small", "daemon-million"}
    assert os.listdir(run_path) == []


def test_the_many_entries_are_whole_and_accounted_for(tmp_path: Path) -> None:
    root = str(tmp_path / "many")
    million.make_entries(root, 512, lambda share, words: None)
    directory = CacheDirectory(root, 5.0)
    try:
        assert directory.usage().total() == (512 * million.ENTRY_BYTES, 512)
        reader = EntryReader(directory.layout, directory.recency)
        found = list(all_entries(directory.layout))
        loaded = [reader.load(entry.name) for entry in found]
        assert {payload for payload, _ in filter(None, loaded)} == {bytes(million.ENTRY_BYTES)}
        assert None not in loaded
        prices = Prices(directory.layout)
        assert len({prices.cost_ns(entry) for entry in found}) > 500
    finally:
        directory.close()


@pytest.mark.parametrize(
    "bar, value, shown, holds",
    [
        (Bar(">=", 2.5, "x"), 2.4999, "2.49x", False),
        (Bar(">=", 2.5, "x"), 2.5, "2.50x", True),
        (Bar(">=", 500, "x"), 499.9, "499x", False),
        (Bar("<=", 2, "x"), 2.0001, "2.01x", False),
        (Bar("<=", 2, "x"), 1.991, "2.00x", True),
        (Bar("<", 1, " %"), 0.9999, "0.99 %", True),
        (Bar("<", 1, " %"), 1.0, "1.00 %", False),
        (Bar("<", 2000, " ms"), 1999.9, "1,999 ms", True),
        (Bar(">=", 0.29, "x"), 0.29, "0.29x", True),
    ],
)
def test_a_shown_number_never_contradicts_its_verdict(bar: Bar, value: float, shown: str, holds: bool) -> None:
    assert (bar.show(value), bar.holds(value)) == (shown, holds)


@pytest.mark.parametrize("words, code", [(["hit"], 1), (["hit", "--no-fail"], 0)])
def test_a_bar_that_is_missed_is_exit_code_1_unless_told_not_to_fail(
    words: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def too_slow(_: Bench) -> list[Line]:
        return [ratio_line("hit", {"ours": 10.0, "theirs": 11.0}, 2.5)]

    monkeypatch.setitem(bench.MEASUREMENTS, "hit", too_slow)
    monkeypatch.setattr("sys.argv", ["lockcache-stress", "bench", "--json", *words])
    assert scenarios.run_command_line() == code
    assert json.loads(capsys.readouterr().out)["ok"] is False


@EXHAUSTIVE
def test_the_curves_have_a_point_for_each_size_and_cache(run_path: Path) -> None:
    lines = stress_json("bench", "--quick", "curve-entries", "curve-processes", run_path=run_path)["lines"]
    curves = [line["numbers"]["curve"] for line in lines]
    assert [curve["what"] for curve in curves] == ["hit", "miss", "put", "put at cap", "open", "peak"]
    for curve in curves:
        assert {"lockcache", "diskcache"} <= set(curve["points"])
        places = [50, 100] if curve["over"] == "entries" else [1, 2]
        assert all([place for place, _ in points] == places for points in curve["points"].values())
        assert all(value > 0 for points in curve["points"].values() for _, value in points)
    assert curves[-1]["points"]["lockcache"][1][1] <= 1
    assert os.listdir(run_path) == []


@pytest.mark.parametrize("peer", peers.installed(), ids=lambda peer: peer.name)
def test_what_a_cache_is_filled_with_is_what_it_has(peer: peers.Peer, tmp_path: Path) -> None:
    with peers.opened(peer, str(tmp_path)) as store:
        store.fill(0, 40, b"value")
    with peers.opened(peer, str(tmp_path), 1 << 20 if peer.has_cap else None) as store:
        assert {store.get(b"old-%d" % number) for number in range(40)} == {b"value"}
        assert store.get(b"old-40") is None
        store.put(b"new", b"other")
        store.want(b"wanted", lambda: b"computed")
        store.want(b"wanted", lambda: b"again")
        assert (store.get(b"new"), store.get(b"wanted")) == (b"other", b"computed")
