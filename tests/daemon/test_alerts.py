# SPDX-License-Identifier: Apache-2.0
"""Each alert that comes with the daemon is raised when it should be, and not otherwise, as promtool finds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests.daemon.tools import promtool
from tests.docs.pages import PROJECT

RULES: Final = PROJECT / "daemon/lockcache_daemon/deploy/prometheus/lockcache.rules.yml"


class Case(NamedTuple):
    """Series of an hour and more, a sample a minute, and the labels of the alerts that they raise."""

    alert: str
    #: By name and labels: values in promtool's notation.
    series: dict[str, str]
    raised: tuple[dict[str, str], ...]


_ONE: Final = 'directory="/a", instance="one:9477", job="lockcache"'
_LABELS: Final = {"directory": "/a", "instance": "one:9477", "job": "lockcache"}
_POD: Final = 'instance="10.0.0.7:9100", job="kubernetes-pods", pod="lockcache-daemon-x7"'
_SIDECAR: Final = 'instance="10.0.0.7:9477", job="kubernetes-pods", pod="train-0"'
_MOVED: Final = 'instance="10.0.0.7:8080", job="kubernetes-pods", pod="train-0"'
_SERVER: Final = 'directory="/a", server="cache"'
_OF_POD: Final = {"instance": "10.0.0.7:9100", "job": "kubernetes-pods", "pod": "lockcache-daemon-x7"}

CASES: Final = (
    Case("LockcacheDaemonDown", {'up{instance="one:9100", job="lockcache"}': "0x180"}, (
        {"instance": "one:9100", "job": "lockcache"},
    )),
    Case("LockcacheDaemonDown", {f"up{{{_POD}}}": "0x180"}, (_OF_POD,)),
    Case("LockcacheDaemonDown", {f"up{{{_SIDECAR}}}": "0x180"}, (
        {"instance": "10.0.0.7:9477", "job": "kubernetes-pods", "pod": "train-0"},
    )),
    # At a port of its own, it is known for an hour.
    Case("LockcacheDaemonDown", {f"up{{{_MOVED}}}": "1x150 0x30", f"lockcache_up{{{_MOVED}}}": "1x150"}, (
        {"instance": "10.0.0.7:8080", "job": "kubernetes-pods", "pod": "train-0"},
    )),
    Case("LockcacheDaemonDown", {f"lockcache_up{{{_POD}}}": "0x180", f"up{{{_POD}}}": "1x180"}, (_OF_POD,)),
    Case("LockcacheDaemonDown", {'up{instance="10.0.0.7:80", job="kubernetes-pods", pod="web"}': "0x180"}, ()),
    Case("LockcacheDaemonHangs", {'lockcache_last_tick_age_seconds{instance="one:9477"}': "300x180"}, (
        {"instance": "one:9477"},
    )),
    Case("LockcacheDaemonHangs", {'lockcache_last_tick_age_seconds{instance="one:9477"}': "20x180"}, ()),
    Case("LockcacheReloadRefused", {'lockcache_reload_refused{instance="one:9477"}': "1x180"}, (
        {"instance": "one:9477"},
    )),
    Case("LockcacheReloadRefused", {'lockcache_reload_refused{instance="one:9477"}': "0x180"}, ()),
    # One node of a DaemonSet: all have the same path.
    Case("LockcacheDirectoryNotKept", {
        f"lockcache_directory_up{{{_ONE}}}": "1x180",
        f"lockcache_directory_up{{{_ONE.replace('one', 'two')}}}": "0x180",
        f"lockcache_directory_standby{{{_ONE.replace('one', 'two')}}}": "0x180",
    }, ({**_LABELS, "instance": "two:9477"},)),
    Case("LockcacheDirectoryNotKept", {
        f"lockcache_directory_up{{{_ONE}}}": "0x180",
        f"lockcache_directory_standby{{{_ONE}}}": "1x180",
    }, ()),
    Case("LockcacheOverCap", {
        f"lockcache_directory_bytes{{{_ONE}}}": "20x180",
        f"lockcache_directory_max_bytes{{{_ONE}}}": "10x180",
    }, (_LABELS,)),
    Case("LockcacheOverCap", {
        f"lockcache_directory_bytes{{{_ONE}}}": "10x180",
        f"lockcache_directory_max_bytes{{{_ONE}}}": "10x180",
    }, ()),
    Case("LockcacheCapTooSmall", {
        f"lockcache_client_misses_total{{{_ONE}}}": "0+3x180",
        f"lockcache_client_hits_total{{{_ONE}}}": "0+10x180",
        f"lockcache_evicted_entries_total{{{_ONE}}}": "0+3x180",
    }, (_LABELS,)),
    # A herd that is served: seven of eight wait, and one misses.
    Case("LockcacheCapTooSmall", {
        f"lockcache_client_misses_total{{{_ONE}}}": "0+1x180",
        f"lockcache_client_hits_total{{{_ONE}}}": "0+7x180",
        f"lockcache_evicted_entries_total{{{_ONE}}}": "0+1x180",
    }, ()),
    Case("LockcacheCorruptEntries", {f"lockcache_corrupt_entries_total{{{_ONE}}}": "0x120 1x60"}, (_LABELS,)),
    Case("LockcacheCorruptEntries", {f"lockcache_client_corrupt_entries_total{{{_ONE}}}": "0x120 1x60"}, (_LABELS,)),
    Case("LockcacheCorruptEntries", {f"lockcache_corrupt_entries_total{{{_ONE}}}": "1x180"}, ()),
    Case("LockcacheWritesDropped", {f"lockcache_client_dropped_writes_total{{{_ONE}}}": "0+1x180"}, (_LABELS,)),
    Case("LockcacheWritesDropped", {f"lockcache_client_dropped_writes_total{{{_ONE}}}": "5x180"}, ()),
    Case("LockcacheServerNotAsked", {
        f"lockcache_remote_up{{{_SERVER}}}": "0x180",
        f"lockcache_remote_last_report_timestamp_seconds{{{_SERVER}}}": "0+60x180",
    }, ({"server": "cache"},)),
    Case("LockcacheServerErrors", {
        f"lockcache_remote_errors_total{{{_SERVER}}}": "0+30x180",
        f"lockcache_remote_answers_total{{{_SERVER}}}": "0+60x180",
        f"lockcache_remote_puts_total{{{_SERVER}}}": "0+60x180",
    }, ({"server": "cache"},)),
    Case("LockcacheServerSlow", {
        f"lockcache_remote_answer_seconds_total{{{_SERVER}}}": "0+30x180",
        f"lockcache_remote_answers_total{{{_SERVER}}}": "0+60x180",
    }, ({"server": "cache"},)),
    Case("LockcacheServerNotBelieved", {
        f"lockcache_remote_corrupt_entries_total{{{_SERVER}}}": "0+1x180",
        f"lockcache_remote_refused_entries_total{{{_SERVER}}}": "0x180",
    }, ({"server": "cache"},)),
    Case("LockcacheServerLosesWrites", {
        f"lockcache_remote_lost_puts_total{{{_SERVER}}}": "0+30x180",
        f"lockcache_remote_puts_total{{{_SERVER}}}": "0+60x180",
    }, ({"server": "cache"},)),
    Case("LockcacheServerLosesWrites", {
        f"lockcache_remote_lost_puts_total{{{_SERVER}}}": "0+1x180",
        f"lockcache_remote_puts_total{{{_SERVER}}}": "0+60x180",
    }, ()),
)  # fmt: skip


def _shipped() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_alert_has_a_case_in_which_it_is_raised() -> None:
    assert {case.alert for case in CASES if case.raised} == {rule["alert"] for rule in _shipped()}


def test_each_alert_is_raised_for_what_it_names_and_not_otherwise(tmp_path: Path) -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in _shipped()}  # type: ignore[index]
    tests = [_promtool_test(case, severities[case.alert]) for case in CASES]
    file = tmp_path / "cases.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    said = subprocess.run([promtool(), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def _promtool_test(case: Case, severity: str) -> dict[str, object]:
    common = {"__name__": "ALERTS", "alertname": case.alert, "alertstate": "firing", "severity": severity}
    labels = [{**common, **raised} for raised in case.raised]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}',
                "eval_time": "170m",
                "exp_samples": [{"labels": _in_promql(each), "value": 1} for each in labels],
            }
        ],
    }


def _in_promql(labels: dict[str, str]) -> str:
    pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
    return f"{labels['__name__']}{{{pairs}}}"
