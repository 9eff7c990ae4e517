"""The deployment files: checked with the tools of their kind, and run as far as one machine allows."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.counters import Counters
from lockcache_daemon.observe.metrics import Metrics
from lockcache_daemon.observe.state import Board, DirectoryView, Limits
from tests.daemon.material import fill
from tests.daemon.promtool import promtool
from tests.daemon.running import HANG_SECONDS, SCRIPT, RunningDaemon, run_daemon, until

DAEMON = Path(__file__).parents[2] / "daemon" / "lockcache_daemon" / "deploy"
CHECKOUT = Path(__file__).parents[2]
UNITS = sorted((DAEMON / "systemd").glob("*.service"))
KUBERNETES = DAEMON / "kubernetes"
MANIFESTS = sorted(set(KUBERNETES.glob("*.yaml")) - {KUBERNETES / "kustomization.yaml"})
SLURM = DAEMON / "slurm"
JOB = "4711"


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def installed(unit: Path, folder: Path) -> Path:
    """The unit with a program that is there on this machine."""
    copy = folder / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    return copy


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_say_of_the_units(unit: Path, tmp_path: Path) -> None:
    command = [tool("systemd-analyze"), "verify", "--man=no", str(installed(unit, tmp_path))]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")  # the code alone says nothing of unknown keys


def test_the_systems_unit_is_confined_as_far_as_systemd_can_tell(tmp_path: Path) -> None:
    (unit,) = (each for each in UNITS if each.name == "lockcache-daemon.service")
    command = [tool("systemd-analyze"), "security", "--offline=true", "--threshold=20", str(installed(unit, tmp_path))]
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
    (told,) = (each["value"] for each in daemon["env"] if each["name"] == "LOCKCACHE_ALIVE_FILE")
    command = [word.replace(told, str(alive)) for word in daemon[kind]["exec"]["command"]]  # and by no port
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
    command = [tool("kubectl"), "kustomize", str(DAEMON / "kustomize")]
    rendered = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (rendered.returncode, rendered.stderr) == (0, "")
    (document,) = yaml.safe_load_all(rendered.stdout)
    validate.validate(document, validate.latest_version(), strict=True)
    (told,) = yaml.safe_load_all((DAEMON / "kustomize" / "kustomization.yaml").read_text())
    assert document["metadata"]["namespace"] == told["namespace"]
    images = {container["image"] for container in _containers(document)}
    assert images == {f"{told['images'][0]['newName']}@{told['images'][0]['digest']}"}
    # What a patch replaces is what it is meant to replace.
    assert "200Gi" in _containers(document)[1]["args"]
    assert document["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"] == "/mnt/nvme/lockcache"


def test_tmpfiles_makes_the_directory_for_its_owner_alone(tmp_path: Path) -> None:
    command = [
        tool("systemd-tmpfiles"),
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
    view = replace(view, miss_reasons={"compiler": 1})
    board.update("/a", **{field.name: getattr(view, field.name) for field in fields(view) if field.name != "root"})
    return set(re.findall(r"(?m)^(lockcache_\w+)", Metrics(board).text().decode()))


def test_every_panel_shows_what_the_daemon_exports_and_has_a_place_of_its_own() -> None:
    dashboard = json.loads((DAEMON / "grafana" / "lockcache.json").read_text())
    panels, names, places = dashboard["panels"], exported(), set()
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    for panel in panels:
        for target in panel["targets"]:
            used = set(re.findall(r"lockcache_\w+", target["expr"]))
            assert used
            assert used <= names, (panel["title"], used - names)
            assert target["expr"].count("(") == target["expr"].count(")")
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, panel["title"]
        assert place["x"] + place["w"] <= 24
        places |= cells
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


def test_every_file_that_comes_with_the_daemon_is_listed_and_printed_as_it_is() -> None:
    names = run_daemon("files").stdout.splitlines()
    assert {"systemd/lockcache.toml", "grafana/lockcache.json", "slurm/prolog.sh", "kustomize/kustomization.yaml"} < {
        *names
    }
    assert not any(name.endswith(".py") for name in names)
    for name in names:
        assert run_daemon("files", name).stdout == (DAEMON / name).read_text()
    assert run_daemon("files", "--path").stdout == f"{DAEMON}\n"


@pytest.mark.parametrize("name", ["no-such", "../found.py", "found.py", "/etc/passwd"])
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
    command = [tool("systemd-analyze"), "verify", "--man=no", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_shellcheck_has_nothing_to_say_of_the_scripts() -> None:
    scripts = sorted(map(str, SLURM.glob("*.sh")))
    command = [tool("shellcheck"), "--external-sources", "--source-path=SCRIPTDIR", *scripts]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")


def _pins(file: str) -> dict[str, tuple[str, list[str]]]:
    """Of each package the one version that is named, and its hashes."""
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
    told = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = told["project"]["optional-dependencies"]
    for file, wanted in (
        ("constraints.txt", [*told["project"]["dependencies"], *extras["cli"], *extras["metrics"]]),
        ("build-constraints.txt", told["build-system"]["requires"]),
    ):
        pins = _pins(file)
        for requirement in map(requirements.Requirement, wanted):
            if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.13"}):
                assert requirement.specifier.contains(pins[requirement.name][0]), requirement


def test_the_image_is_made_from_one_that_is_named_by_its_digest_and_from_hashes() -> None:
    text = (KUBERNETES / "Dockerfile").read_text()
    assert re.findall(r"(?m)^(?:FROM|ARG) .*", text) == [
        "ARG PYTHON_IMAGE",  # without a default: a tag is no digest, and one that nobody looked at is worse
        "FROM ${PYTHON_IMAGE} AS build",
        "ARG PYTHON_IMAGE",
        "FROM ${PYTHON_IMAGE}",
    ]
    (check,) = re.findall(r"(?m)^RUN (case .* esac)$", text)
    for image, code in (("python:3.13-slim@sha256:" + "0" * 64, 0), ("python:3.13-slim", 1), ("", 1)):
        ended = subprocess.run(["sh", "-c", check], env={"PYTHON_IMAGE": image}, capture_output=True, check=False)
        assert ended.returncode == code
    assert "PIP_REQUIRE_HASHES=1" in text


def test_what_the_image_is_built_from_is_all_that_leaves_a_checkout() -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    told = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    first, *rest = [line for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    let_in = {line[1:] for line in rest if line.startswith("!")}
    build = told["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*build["packages"], *build["shared-data"], *told["project"]["license-files"]}
    needed |= {"pyproject.toml", "README.md", told["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]}
    assert (first, let_in) == ("*", needed)


class Node:
    """A node of a cluster, as far as the scripts can see one."""

    def __init__(self, folder: Path, mode: str = "job", uid: int | None = None, daemon: str = SCRIPT) -> None:
        self.root = folder / "node"
        self.conf = folder / "lockcache.conf"
        uid = os.getuid() if uid is None else uid
        self.conf.write_text(
            f"LOCKCACHE_SLURM_ROOT={self.root}\nLOCKCACHE_SLURM_MODE={mode}\n"
            f'LOCKCACHE_SLURM_OPTIONS="--max-size 1M --interval 50ms"\nLOCKCACHE_SLURM_DAEMON={daemon}\n'
        )
        self.directory = self.root / (f"job-{JOB}" if mode == "job" else f"user-{uid}")
        slurm = {
            "SLURM_JOB_ID": JOB,
            "SLURM_JOB_UID": str(uid),
            "SLURM_JOB_GID": str(os.getgid() if uid == os.getuid() else uid),
        }
        self.environment = {**os.environ, **slurm, "LOCKCACHE_SLURM_CONF": str(self.conf)}
        self.environment.pop("LOCKCACHE_DIR", None)

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SLURM / script)],
            env={**self.environment, **environment},
            capture_output=True,  # to the end: who kept these pipes would keep Slurm
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    @property
    def pid(self) -> int:
        return int((self.root / ".pids" / JOB).read_text())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    tool("setpriv")
    return Node(tmp_path)


@pytest.mark.long
def test_a_job_has_a_directory_and_a_daemon_and_leaves_neither(node: Node) -> None:
    began = node.run("prolog.sh")
    assert (began.returncode, began.stdout, began.stderr) == (0, "", "")
    try:
        assert stat.S_IMODE(node.directory.stat().st_mode) == 0o700
        assert node.run("taskprolog.sh").stdout == f"export LOCKCACHE_DIR={node.directory}\n"
        until((node.directory / "lockcache" / "daemon.json").exists)
        fill(node.directory, 200, 10_000)
        with FileStreamProgramCache(node.directory) as cache:
            assert cache.max_size_bytes == 1_000_000
            until(lambda: cache.stats().bytes <= 950_000 and len(cache) < 100)
        pid = node.pid
    finally:
        ended = node.run("epilog.sh")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert os.listdir(node.root / ".pids") == []
    assert not node.directory.exists()
    until(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_a_daemon_that_does_not_hear_is_killed(node: Node) -> None:
    node.run("prolog.sh")
    until((node.directory / "lockcache" / "daemon.json").exists)
    pid = node.pid
    os.kill(pid, signal.SIGSTOP)
    assert node.run("epilog.sh").returncode == 0
    until(lambda: not _is_running(pid))
    assert not node.directory.exists()


def test_a_process_that_has_the_daemons_pid_by_now_is_left_alone(node: Node) -> None:
    node.run("prolog.sh")
    daemon = node.pid
    with subprocess.Popen(["sleep", "1000"]) as other:
        (node.root / ".pids" / JOB).write_text(f"{other.pid}\n")
        assert node.run("epilog.sh").returncode == 0
        assert other.poll() is None
        other.kill()
    os.kill(daemon, signal.SIGTERM)


@pytest.mark.long
def test_a_directory_that_stays_is_brought_under_its_budget_when_a_job_ends(tmp_path: Path) -> None:
    node = Node(tmp_path, "node")
    assert node.run("prolog.sh").stderr == ""
    assert node.run("taskprolog.sh").stdout == f"export LOCKCACHE_DIR={node.directory}\n"
    fill(node.directory, 200, 10_000)
    ended = node.run("epilog.sh")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert sum(path.stat().st_size for path in node.directory.glob("entries/??/*")) <= 950_000


def test_what_the_user_set_counts(node: Node) -> None:
    node.root.mkdir()
    node.directory.mkdir()
    assert node.run("taskprolog.sh", LOCKCACHE_DIR="/mine").stdout == ""


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh", "taskprolog.sh"])
@pytest.mark.parametrize("lacks", ["SLURM_JOB_ID", "SLURM_JOB_UID", "conf", "daemon", "root"])
def test_nothing_that_is_missing_fails_a_job(tmp_path: Path, script: str, lacks: str) -> None:
    node = Node(tmp_path, daemon="/no/such/daemon" if lacks == "daemon" else SCRIPT)
    if lacks == "conf":
        node.conf.unlink()
    if lacks == "root":
        node.root.write_text("a file in its place")
    done = node.run(script, **({lacks: "x; touch /"} if lacks.startswith("SLURM") else {}))
    assert done.returncode == 0
    if lacks != "daemon":
        assert done.stdout == ""
    if lacks == "daemon":
        node.run("epilog.sh")


@pytest.mark.root
def test_another_users_job_has_a_directory_and_a_daemon_of_its_own(tmp_path: Path) -> None:
    tool("setpriv")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    told, program = tmp_path / "told", tmp_path / "daemon"
    told.write_text("")
    told.chmod(0o666)
    program.write_text(
        f'#!/bin/sh\necho "$(id -u):$(id -g):$(id -G)" >> {told}\nexec sleep 1000 # stands in for the daemon\n'
    )
    program.chmod(0o755)
    node = Node(tmp_path, uid=65534, daemon=str(program))
    assert node.run("prolog.sh").stderr == ""
    status = node.directory.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (65534, 65534, 0o700)
    until(lambda: told.read_text() == "65534:65534:65534\n")
    os.kill(node.pid, signal.SIGTERM)
    assert node.run("epilog.sh").returncode == 0
    assert not node.directory.exists()


@pytest.mark.root
def test_a_directory_that_somebody_else_planted_is_not_given_to_the_job(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.root.mkdir()
    node.directory.symlink_to(tmp_path)
    done = node.run("prolog.sh")
    assert (done.returncode, "belongs to somebody else" in done.stderr) == (0, True)
    assert not (node.root / ".pids" / JOB).exists()
