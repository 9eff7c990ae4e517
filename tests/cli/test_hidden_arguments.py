# SPDX-License-Identifier: Apache-2.0
"""Secrets among the arguments of a program: not in the process list while it runs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.cli import _secrets_in
from tests.secret_texts import SECRETS

_URL = "redis://:TOPSECRET@127.0.0.1:{port}"
# Commands that call the server at {port}, at once or by the program that they run.
_RUN = ["run", "--quiet", "--dir", "{dir}/cache"]
_CALL = [
    sys.executable,
    "-c",
    "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)",
    "{port}",
]
_COMMANDS = {
    "run": [*_RUN, "--remote", _URL, "--", *_CALL],
    "run=": [*_RUN, f"--remote={_URL}", "--", *_CALL],
    "twice": [
        *_RUN,
        "--remote",
        _URL,
        f"--remote={_URL}",
        "--remote",
        "redis://:OTHERTOPSECRET@127.0.0.1",
        "--",
        *_CALL,
    ],
    "a setting": [*_RUN, "--remote", "redis://127.0.0.1:{port}?password=TOPSECRET", "--", *_CALL],
    "a variable": [*_RUN, "--", "env", f"LOCKCACHE_REMOTE={_URL}", "AWS_SECRET_ACCESS_KEY=TOPSECRET", *_CALL],
    "doctor": ["doctor", "--remote", _URL],
    "doctor=": ["doctor", f"--remote={_URL}"],
    "fetch": ["manifest", "fetch", "{dir}/manifest", "{dir}/cache", "--remote", _URL],
}


@pytest.mark.parametrize("command", _COMMANDS)
def test_no_user_of_the_host_reads_a_secret_among_the_arguments_of_a_running_command(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "manifest").write_text(f"# lockcache manifest 1\n{'ab' * 32}\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        given = {"port": listener.getsockname()[1], "dir": tmp_path}
        words = [sys.executable, "-m", "lockcache", *(word.format(**given) for word in _COMMANDS[command])]
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            called, _ = listener.accept()  # by now it runs
            seen = Path(f"/proc/{running.pid}/cmdline").read_bytes()
            called.close()
        finally:
            running.kill()
            running.wait()
    assert b"lockcache" in seen
    assert b"TOPSECRET" not in seen


def test_the_command_that_is_run_has_the_whole_url(tmp_path: Path) -> None:
    url = _URL.format(port=1)
    words = [sys.executable, "-m", "lockcache", *_RUN, "--remote", url, "--", "printenv", "LOCKCACHE_REMOTE"]
    words = [word.format(dir=tmp_path) for word in words]
    assert subprocess.check_output(words, text=True) == f"{url}\n"


def test_an_argument_of_any_length_is_looked_through_once() -> None:
    """As long as the kernel takes one, and eight times that: looked at again from each place, it would take an hour."""
    assert _secrets_in(b"lockcache\0" + b"://" * 350_000 + b"\0") == []


# A program that waits for the end of its input in the place of what it does with its arguments.
_WAIT = """
import importlib, sys, types
name, module = sys.argv.pop(1), sys.argv.pop(1)
import lockcache.cli, lockcache_start
def wait(arguments=()):
    print("running", flush=True)
    sys.stdin.read()
    return 7
sys.modules[module] = types.SimpleNamespace(run=wait, run_command_line=wait)
getattr(lockcache_start, name)()
"""
_PROGRAMS = {
    "lockcache": "lockcache.cli.program",
    "daemon": "lockcache_daemon.command",
    "stress": "lockcache_stress.commands",
}


@pytest.mark.slow
@pytest.mark.parametrize("program", _PROGRAMS)
def test_each_form_of_a_secret_leaves_the_process_list_in_each_program(program: str) -> None:
    # As words of their own, but for headers and URLs, which are one.
    texts = [text for text in SECRETS if "hunter3" in text and ": " not in text and "://" not in text]
    split = [word for text in texts for word in text.split()]
    words = [*SECRETS, *split, "--kept", "plain", "--key-file", "/run/key"]
    with subprocess.Popen(
        [sys.executable, "-c", _WAIT, program, _PROGRAMS[program], *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"running\n"
        shown = Path(f"/proc/{running.pid}/cmdline").read_bytes().decode().split("\0")
        running.communicate()
        assert running.returncode == 7
    shown = shown[-len(words) - 1 : -1]
    assert shown[-4:] == words[-4:]
    left = [
        word
        for text, word in zip(words, shown, strict=True)
        if "hunter3" in word or (text in SECRETS and word.endswith(text[-8:]))
    ]
    assert left == []
