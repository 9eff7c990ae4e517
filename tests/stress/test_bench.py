"""The benchmark runs, prints what must hold next to what is, and fails where it does not hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.entry.locate import Prices
from lockcache.filestream.entry.reader import EntryReader
from lockcache.filestream.eviction.evict import all_entries
from lockcache_stress.bench import daemon_million as million, measurements as bench, peers
from lockcache_stress.bench.base import Bar, Bench, Line, ratio_line
from lockcache_stress.bench.daemon import Daemons
from lockcache_stress.bench.peers import lacking_room
from lockcache_stress.commands import scenarios
from lockcache_stress.report.terminal import print_bench
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


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.root
def test_a_put_is_judged_on_a_new_disk_and_told_for_this_one(run_path: Path) -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    judged, reported = stress_json("bench", "put", "--quick", "--no-fail", run_path=run_path)["lines"]
    assert (judged["name"], judged["bar"]) == ("put, new key, 16 KiB, new ext4", ">= 4x")
    assert (reported["name"], reported["bar"], reported["ok"]) == ("put, new key, 16 KiB, this disk", "", True)
    assert reported["ratio"]
    assert str(run_path) not in Path("/proc/self/mounts").read_text()
    assert os.listdir(run_path) == []


def test_a_daemon_that_dies_meanwhile_is_told(tmp_path: Path) -> None:
    with Daemons(str(tmp_path)) as daemons, daemons.attending(str(tmp_path / "cache"), None):
        [mine] = [each for each in psutil.Process().children() if str(tmp_path / "cache") in each.cmdline()]
        mine.kill()
    line = daemons.line("hit")
    assert (line.ours, line.ok) == ("1 of 1", False)
    assert "the daemon died" in line.name


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


@pytest.mark.parametrize("measure", [bench.daemon.measure_idle, bench.daemon.measure_sweep])
def test_without_the_daemon_or_room_its_measurements_are_skipped_with_a_reason(
    measure: Callable[[Bench], list[Line]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("lockcache_stress.bench.daemon.find_daemon", lambda: None)
    [line] = measure(Bench(str(tmp_path), True, lambda share, words: None))
    assert (line.ok, line.bar) == (True, "")
    assert "not installed" in line.skipped
    print_bench({}, [line])
    assert "skipped: lockcache-daemon" in capsys.readouterr().out
    assert "less" in lacking_room(str(tmp_path), 10**12)
    assert lacking_room(str(tmp_path), 1) == ""


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


def test_without_cuda_core_a_ratio_has_no_bar_to_miss() -> None:
    line = ratio_line("hit", {"ours": 10.0, "floor": 2.0}, 2.5)
    assert (line.bar, line.ok, line.theirs) == ("", True, "")


@EXHAUSTIVE
def test_the_curves_have_a_point_for_each_size_and_cache_and_are_drawn(run_path: Path) -> None:
    page, picture = run_path / "bench.html", run_path / "bench.png"
    words = ("bench", "--quick", "curve-entries", "curve-processes", "--report", str(page), "--png", str(picture))
    lines = stress_json(*words, run_path=run_path)["lines"]
    curves = [line["numbers"]["curve"] for line in lines]
    assert [curve["what"] for curve in curves] == ["hit", "miss", "put", "put at cap", "open", "peak"]
    for curve in curves:
        assert {"lockcache", "diskcache"} <= set(curve["points"])
        places = [50, 100] if curve["over"] == "entries" else [1, 2]
        assert all([place for place, _ in points] == places for points in curve["points"].values())
        assert all(value > 0 for points in curve["points"].values() for _, value in points)
    assert curves[-1]["points"]["lockcache"][1][1] <= 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert page.read_text().count('class="plot"') == len(curves)
    assert sorted(os.listdir(run_path)) == ["bench.html", "bench.png"]


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
