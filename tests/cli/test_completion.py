# SPDX-License-Identifier: Apache-2.0
"""Completion, as a shell asks for it; in a real bash, and in zsh and fish where there are any."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from lockcache import FileStreamProgramCache
from lockcache.cli.key_argument import complete_name
from lockcache.filestream.disk.layout import entry_name
from tests.cli.command import LOCKCACHE, run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_printed_is_a_script_of_that_shell_with_instructions(shell: str) -> None:
    printed = run("completion", shell).stdout
    assert printed.startswith("# ")
    assert f"lockcache completion {shell}" in printed
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}, to check the script")
    checked = subprocess.run([shell, "-n"], input=printed, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_in_bash_commands_options_and_hashes_are_completed(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"x"
    name = entry_name(b"k")
    script = f"""
        eval "$(lockcache completion bash)"
        ask() {{
            COMPREPLY=(); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            asked=$(complete -p "$1"); asked=${{asked#*-F }}; "${{asked%% *}}" "$1"; echo "${{COMPREPLY[@]}}"
        }}
        ask lockcache ev
        ask lockcache ls --sor
        ask lockcache inspect {name[:3]}
        ask lockcache ls --kind cu
        ask lockcache-daemon --max-s
        ask lockcache-stress her
    """
    path = f"{Path(LOCKCACHE).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LOCKCACHE_DIR": str(cache_path)}
    asked = subprocess.run(["bash", "-c", script], env=environment, text=True, capture_output=True, check=False)
    assert asked.stdout.splitlines() == ["evict", "--sort", name, "cubin", "--max-size", "herd"]


@pytest.mark.parametrize("begun, directory", [("zz", "cache"), ("a", "cache"), ("ab", "file"), ("ab", "a\0b")])
def test_what_begins_no_hash_and_what_is_no_cache_completes_to_nothing(
    begun: str, directory: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    FileStreamProgramCache(tmp_path / "cache")["k"] = b"x"
    context = click.Context(click.Command("inspect"))
    context.params["directory"] = str(tmp_path / directory)
    assert complete_name(context, click.Argument(["key"]), begun) == []
