# SPDX-License-Identifier: Apache-2.0
"""The deployment files: checked with the tools of their kind, and run as far as one machine allows."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from lockcache.remote import ServerCounters, ServerSeen
from lockcache.reports import Counters
from lockcache_daemon.observe.board import Board, DirectoryView, Limits
from lockcache_daemon.observe.metrics import Metrics
from tests.daemon.daemon_process import SCRIPT, RunningDaemon, run_daemon, until
from tests.daemon.tools import need_program, promtool

DAEMON = Path(__file__).parents[2] / "daemon" / "lockcache_daemon" / "deploy"
CHECKOUT = Path(__file__).parents[2]
UNITS = sorted((DAEMON / "systemd").glob("*.service"))
KUBERNETES = DAEMON / "kubernetes"
MANIFESTS = sorted(set(KUBERNETES.glob("*.yaml")) - {KUBERNETES / "kustomization.yaml"})


def installed(unit: Path, folder: Path) -> Path:
    """The unit with a program that is there on this machine."""
    copy = folder / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    return copy


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_say_of_the_units(unit: Path, tmp_path: Path) -> None:
    command = [need_program("systemd-analyze"), "verify", "--man=no", str(installed(unit, tmp_path))]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")  # the code alone says nothing of unknown keys


def test_the_systems_unit_is_confined_as_far_as_systemd_can_tell(tmp_path: Path) -> None:
    (unit,) = (each for each in UNITS if each.name == "lockcache-daemon.service")
    command = [
        need_program("systemd-analyze"),
        "security",
        "--offline=true",
        "--threshold=20",
        str(installed(unit, tmp_path)),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout[-200:] + said.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_units_start_what_the_daemon_understands(unit: Path, tmp_path: Path) -> None:
    found = re.search(r"(?m)^ExecStart=\S+ (.*)$", unit.read_text())
    assert found is not None
    flags = [word for word in found[1].split() if word.startswith("-")]
    helped = run_daemon("--help").stdout
    assert all(flag in helped for flag in flags)


def test_the_settings_to_begin_with_are_understood(tmp_path: Path) -> None:
    config = tmp_path / "lockcache.toml"
    text = (DAEMON / "systemd" / "lockcache.toml").read_text()
    config.write_text(text.replace("/var/cache/lockcache", str(tmp_path / "cache")))
    done = subprocess.run([SCRIPT, "--config", str(config), "--dry-run"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
@pytest.mark.parametrize("version", ["1.29", "newest"])
def test_the_manifests_are_valid(manifest: Path, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    number = validate.latest_version() if version == "newest" else version
    for document in _documents(manifest):
        validate.validate(document, number, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_the_manifests_start_what_the_daemon_understands(manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    (daemon,) = (each for each in _containers(_documents(manifest)[0]) if each["name"] == "lockcache-daemon")
    arguments = [word.replace("/cache/kernels", str(tmp_path / "cache")) for word in daemon["args"]]
    environment = {each["name"]: each["value"] for each in daemon["env"]}
    ended = run_daemon(*arguments, "--dry-run", env={**os.environ, **environment})
    assert (ended.returncode, ended.stderr) == (0, "")


def _probe(manifest: Path, kind: str, alive: Path) -> int:
    (daemon,) = (each for each in _containers(_documents(manifest)[0]) if each["name"] == "lockcache-daemon")
    (stated,) = (each["value"] for each in daemon["env"] if each["name"] == "LOCKCACHE_ALIVE_FILE")
    command = [word.replace(stated, str(alive)) for word in daemon[kind]["exec"]["command"]]  # and by no port
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_the_probes_that_restart_a_container_find_a_daemon_that_is_at_work(manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    alive = tmp_path / "alive"

    def find_it_at_work() -> list[bool]:
        return [_probe(manifest, kind, alive) == 0 for kind in ("livenessProbe", "startupProbe")]

    assert find_it_at_work() == [False, False]
    with RunningDaemon("--max-size", "1M", "--alive-file", alive, tmp_path / "cache") as daemon:
        until(alive.exists)
        assert find_it_at_work() == [True, True]
        os.utime(alive, (0, 0))  # as if it had hung since
        assert find_it_at_work() == [False, False]
        assert daemon.end(signal.SIGTERM) == 0
    assert not alive.exists()


def _documents(manifest: Path) -> list[dict[str, Any]]:
    import yaml

    return list(yaml.safe_load_all(manifest.read_text()))


def _containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    spec = document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def test_the_overlay_renders_and_is_valid() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    command = [need_program("kubectl"), "kustomize", str(DAEMON / "kustomize")]
    rendered = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (rendered.returncode, rendered.stderr) == (0, "")
    (document,) = yaml.safe_load_all(rendered.stdout)
    validate.validate(document, validate.latest_version(), strict=True)
    (kustomized,) = yaml.safe_load_all((DAEMON / "kustomize" / "kustomization.yaml").read_text())
    assert document["metadata"]["namespace"] == kustomized["namespace"]
    images = {container["image"] for container in _containers(document)}
    assert images == {f"{kustomized['images'][0]['newName']}@{kustomized['images'][0]['digest']}"}
    # What a patch replaces is what it is meant to replace.
    assert "200Gi" in _containers(document)[1]["args"]
    assert document["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"] == "/mnt/nvme/lockcache"


def test_tmpfiles_makes_the_directory_for_its_owner_alone(tmp_path: Path) -> None:
    command = [
        need_program("systemd-tmpfiles"),
        "--create",
        f"--root={tmp_path}",
        str(DAEMON / "tmpfiles.d" / "lockcache.conf"),
    ]
    (tmp_path / "etc").mkdir()
    me, mine = os.getuid(), os.getgid()
    (tmp_path / "etc" / "passwd").write_text(f"lockcache:x:{me}:{mine}::/:/bin/false\n")
    (tmp_path / "etc" / "group").write_text(f"lockcache:x:{mine}:\n")
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    assert stat.S_IMODE((tmp_path / "var" / "cache" / "lockcache").stat().st_mode) == 0o700


def exported() -> set[str]:
    """The names of the samples that a daemon exports of a directory."""
    board = Board()
    view = DirectoryView("/a", limits=Limits(1, 1, 1, 1), last_sweep=1.0, clients=Counters(last_report_ns=1, reports=1))
    servers = (ServerSeen("redis://server", ServerCounters(), None, is_resting=False),)
    view = replace(view, servers=servers)
    board.update("/a", **{field.name: getattr(view, field.name) for field in fields(view) if field.name != "root"})
    return set(re.findall(r"(?m)^(lockcache_\w+)", Metrics(board).text().decode()))


def test_every_panel_shows_what_the_daemon_exports() -> None:
    dashboard = json.loads((DAEMON / "grafana" / "lockcache.json").read_text())
    panels, names = dashboard["panels"], exported()
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    for panel in panels:
        for target in panel["targets"]:
            used = set(re.findall(r"lockcache_\w+", target["expr"]))
            assert used
            assert used <= names, (panel["title"], used - names)
            assert target["expr"].count("(") == target["expr"].count(")")
    asked = {variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"}
    assert asked == {f"label_values(lockcache_directory_bytes, {name})" for name in ("instance", "directory")}


def test_alerts_are_about_what_the_daemon_exports() -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    groups = yaml.safe_load((DAEMON / "prometheus" / "lockcache.rules.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len({rule["alert"] for rule in rules}) >= 5
    used = {name for rule in rules for name in re.findall(r"lockcache_\w+", rule["expr"])}
    assert used <= exported(), used - exported()
    assert all(rule["annotations"]["summary"] for rule in rules)


def test_promtool_has_nothing_to_say_of_the_alerts() -> None:
    command = [promtool(), "check", "rules", "--lint-fatal", str(DAEMON / "prometheus" / "lockcache.rules.yml")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


# Of a server that is not asked for an hour: one alert, if programs reported on it lately.
NOT_ASKED = """
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: lockcache_remote_up{directory="/a", server="used"}
        values: 0x60
      - series: lockcache_remote_last_report_timestamp_seconds{directory="/a", server="used"}
        values: 0+60x60
      - series: lockcache_remote_up{directory="/a", server="well"}
        values: 1x60
      - series: lockcache_remote_last_report_timestamp_seconds{directory="/a", server="well"}
        values: 0+60x60
      - series: lockcache_remote_up{directory="/a", server="forgotten"}
        values: 0x60
      - series: lockcache_remote_last_report_timestamp_seconds{directory="/a", server="forgotten"}
        values: -7200x60
      - series: lockcache_remote_answer_seconds_total{directory="/a", server="slow"}
        values: 0+30x60
      - series: lockcache_remote_answers_total{directory="/a", server="slow"}
        values: 0+60x60
      - series: lockcache_remote_errors_total{directory="/a", server="failing"}
        values: 0+60x60
      - series: lockcache_remote_answers_total{directory="/a", server="failing"}
        values: 0+60x60
      - series: lockcache_remote_puts_total{directory="/a", server="failing"}
        values: 0+60x60
    alert_rule_test:
      - eval_time: 50m
        alertname: LockcacheServerNotAsked
        exp_alerts: [{exp_labels: {severity: warning, server: used}, exp_annotations: {summary: "Programs continue
          without used, which does not answer; see lockcache doctor --remote"}}]
      - eval_time: 50m
        alertname: LockcacheServerSlow
        exp_alerts: [{exp_labels: {severity: info, server: slow}, exp_annotations: {summary: "slow takes more than 0.1 s
          to answer; is it near enough, and large enough?"}}]
      - eval_time: 50m
        alertname: LockcacheServerErrors
        exp_alerts: [{exp_labels: {severity: warning, server: failing}, exp_annotations: {summary: "More than a tenth of
          the calls of failing fail"}}]
"""


def test_alerts_of_servers_are_raised_for_those_that_are_used_and_not_well(tmp_path: Path) -> None:
    rules = DAEMON / "prometheus" / "lockcache.rules.yml"
    (tmp_path / "tests.yml").write_text(NOT_ASKED.replace("RULES", json.dumps(str(rules))))
    said = subprocess.run(
        [promtool(), "test", "rules", str(tmp_path / "tests.yml")], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_file_that_comes_with_the_daemon_is_listed_and_printed_as_it_is() -> None:
    names = run_daemon("files").stdout.splitlines()
    assert {"systemd/lockcache.toml", "grafana/lockcache.json", "slurm/prolog.sh", "kustomize/kustomization.yaml"} < {
        *names
    }
    assert not any(name.endswith(".py") for name in names)
    for name in names:
        assert run_daemon("files", name).stdout == (DAEMON / name).read_text()
    assert run_daemon("files", "--path").stdout == f"{DAEMON}\n"


@pytest.mark.parametrize("name", ["no-such", "../files.py", "files.py", "/etc/passwd"])
def test_a_file_that_does_not_come_with_the_daemon_is_refused_by_name(name: str) -> None:
    ended = run_daemon("files", name)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert name in ended.stderr


@pytest.mark.parametrize("user", [False, True])
def test_a_unit_that_is_printed_starts_this_installation(user: bool, tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    script = tmp_path / "with space" / "lockcache-daemon"
    script.write_text(f"#!{sys.executable}\nfrom lockcache_daemon.cli import main\nmain()\n")
    script.chmod(0o755)
    words = [script, "systemd-unit", *(["--user"] if user else [])]
    unit = tmp_path / "lockcache-daemon.service"
    unit.write_text(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert f'ExecStart="{script}" --config ' in unit.read_text()
    command = [need_program("systemd-analyze"), "verify", "--man=no", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def _pins(file: str) -> dict[str, tuple[str, list[str]]]:
    """Returns the one version of each package that is named, and its hashes."""
    joined = (KUBERNETES / file).read_text().replace("\\\n", " ")
    pins = {}
    for line in joined.splitlines():
        if line.strip() and not line.startswith("#"):
            name, version, hashes = re.fullmatch(
                r"([\w-]+)==([\w.]+)((?: +--hash=sha256:[0-9a-f]{64})+) *", line
            ).groups()
            pins[name] = version, hashes.split()
    return pins


def test_all_that_the_image_holds_is_pinned_by_hash_and_is_what_the_project_asks_for() -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    requirements = pytest.importorskip("packaging.requirements", reason="needs packaging")
    pyproject = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    pins = _pins("constraints.txt")
    for requirement in map(requirements.Requirement, [*pyproject["project"]["dependencies"], *extras["metrics"]]):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.13"}):
            assert requirement.specifier.contains(pins[requirement.name][0]), requirement
    assert not pins.keys() & {"pydantic", "pyelftools", "rich", "zstandard"}  # no more than that


def test_the_image_is_made_from_one_that_is_named_by_its_digest_and_from_hashes() -> None:
    text = (KUBERNETES / "Dockerfile").read_text()
    assert re.findall(r"(?m)^(?:FROM|ARG) .*", text) == [
        "ARG PYTHON_IMAGE",  # without a default: a tag is not a digest, and one that nobody looked at is worse
        "FROM ${PYTHON_IMAGE} AS build",
        "ARG PYTHON_IMAGE",
        "FROM ${PYTHON_IMAGE}",
    ]
    (check,) = re.findall(r"(?m)^RUN (case .* esac)$", text)
    for image, code in (("python:3.13-slim@sha256:" + "0" * 64, 0), ("python:3.13-slim", 1), ("", 1)):
        ended = subprocess.run(["sh", "-c", check], env={"PYTHON_IMAGE": image}, capture_output=True, check=False)
        assert ended.returncode == code
    assert "--require-hashes" in text
