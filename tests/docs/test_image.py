# SPDX-License-Identifier: Apache-2.0
"""The daemon's image: the commands of its Dockerfile on the wheel, and the context that its build gets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PROJECT

_KUBERNETES = PROJECT / "daemon" / "lockcache_daemon" / "deploy" / "kubernetes"


def _installing() -> str:
    """Returns the shell command by which the Dockerfile installs."""
    joined = (_KUBERNETES / "Dockerfile").read_text().replace("\\\n", "")
    [command] = re.findall(r"^RUN (python -m venv .*)$", joined, re.MULTILINE)
    return str(command)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_the_dockerfile_installs_is_a_daemon_that_works(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    for file in (_KUBERNETES / "constraints.txt", wheel):
        (tmp_path / "from" / file.name).write_bytes(file.read_bytes())
    command = _installing().replace("/opt/", f"{tmp_path}/opt/").replace("/from/", f"{tmp_path}/from/")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # The pins are those of the image's Python; an older one needs tomli, too.
    if sys.version_info < (3, 11):
        pytest.skip("the image's Python has tomllib")
    ran = subprocess.run(["sh", "-ec", command], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    daemon = [tmp_path / "opt/lockcache/bin/lockcache-daemon", "--once", "--max-size", "10M", tmp_path / "kernels"]
    said = subprocess.run(daemon, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "cap 10.0 MB" in said.stdout


def test_the_build_gets_the_wheel_and_nothing_of_a_checkout(tmp_path: Path) -> None:
    wheel = tmp_path / "lockcache-9.9.9-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    # Stands in for docker, which is not here: says what it is asked, and what is in the context.
    docker = tmp_path / "docker"
    docker.write_text(
        '#!/bin/sh\nif [ "$2" = imagetools ]; then echo sha256:abc; exit; fi\n'
        'echo "$@"; for last; do :; done; ls "$last"\n'
    )
    docker.chmod(0o755)
    ran = subprocess.run(
        [_KUBERNETES / "build-image", wheel.name, "--load", "--tag", "it"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    base, asked, *context = ran.stdout.splitlines()
    assert base == "base: python:3.13-slim@sha256:abc"
    assert asked.startswith("buildx build --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:abc --load --tag it ")
    assert sorted(context) == ["Dockerfile", "constraints.txt", wheel.name]
    assert not Path(asked.split()[-1]).exists()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_context(number: int, code: int, tmp_path: Path) -> None:
    wheel, temporary = tmp_path / "lockcache-9.9.9-py3-none-any.whl", tmp_path / "temporary"
    wheel.write_bytes(b"a wheel")
    temporary.mkdir()
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\nls {temporary} >&2\nkill -{number} $PPID\n")
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    command = ["setsid", "--wait", _KUBERNETES / "build-image", wheel.name, "--load"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == code
    assert ran.stderr.strip()  # the context was there
    assert list(temporary.iterdir()) == []


def test_it_says_how_it_is_used_without_a_wheel(tmp_path: Path) -> None:
    for words in ([], ["no-such.whl", "--load"]):
        command = [_KUBERNETES / "build-image", *words]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith("usage: ")
