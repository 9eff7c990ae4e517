# SPDX-License-Identifier: Apache-2.0
"""The workflows are what GitHub takes, pinned, bounded in time, without rights, and call targets that there are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.pages import PROJECT

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))


#: What a job may do beyond reading. What may write to the index or to the release page runs no code of this project.
RIGHTS: Final[dict[str, dict[str, dict[str, str]]]] = {
    "release.yml": {
        "publish": {"id-token": "write"},
        "page": {"contents": "write", "id-token": "write", "attestations": "write"},
    },
    "image.yml": {"push": {"contents": "read", "packages": "write"}},
}


def named_jobs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from yaml.safe_load(path.read_text())["jobs"].items()


def jobs(path: Path) -> Iterator[dict[str, Any]]:
    yield from (job for _, job in named_jobs(path))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path):
        yield from job["steps"]


def test_they_are_valid_by_the_published_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    ran = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_only_and_keeps_no_credentials(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    assert {name: job["permissions"] for name, job in named_jobs(path) if "permissions" in job} == RIGHTS.get(
        path.name, {}
    )
    checkouts = [step for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert "pull_request_target" not in path.read_text()
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_and_says_its_version(path: Path) -> None:
    uses = re.findall(r"uses: (.+)$", path.read_text(), re.MULTILINE)
    assert uses
    for each in uses:
        assert re.fullmatch(r"(actions/[\w-]+|pypa/gh-action-pypi-publish)@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_has_an_end_and_nothing_that_somebody_typed_is_part_of_a_script(path: Path) -> None:
    assert all(isinstance(job.get("timeout-minutes"), int) for job in jobs(path))
    assert not [step["run"] for step in steps(path) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_target_that_is_made_is_there(path: Path) -> None:
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    parts = re.search(r"^STRESS_PARTS := (.*)$", makefile, re.MULTILINE)
    assert parts
    targets |= {f"stress-{part}" for part in parts[1].split()}
    made = {word for step in steps(path) for word in re.findall(r"(?:^| )make ([a-z-]+)", step.get("run", ""))}
    assert made <= targets
    programs = {word for step in steps(path) for word in re.findall(r"(?:^| )([\w-]+/[\w./-]+) ", step.get("run", ""))}
    assert all((PROJECT / each).exists() for each in programs if each.startswith("daemon/"))


def test_what_is_published_is_what_was_built_once_and_a_tag_is_the_version() -> None:
    named = dict(named_jobs(PROJECT / ".github" / "workflows" / "release.yml"))
    assert next(step["run"] for step in named["build"]["steps"] if "run" in step) == "make dist"
    assert any("GITHUB_REF_NAME#v" in step.get("run", "") for step in named["build"]["steps"])
    assert not [
        step for job in ("publish", "page") for step in named[job]["steps"] if "checkout" in step.get("uses", "")
    ]
    assert (named["publish"]["needs"], named["publish"]["environment"]) == ("build", "pypi")


def test_the_night_keeps_what_stress_and_bench_write() -> None:
    kept = {step["with"]["path"] for step in steps(PROJECT / ".github" / "workflows" / "nightly.yml") if "with" in step
            and "path" in step["with"]}  # fmt: skip
    makefile = (PROJECT / "Makefile").read_text()
    assert kept == {"build/stress", "build/bench", "build/coverage/html"}
    assert all(path in makefile for path in kept)
