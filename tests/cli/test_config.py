# SPDX-License-Identifier: Apache-2.0
"""``lockcache config``: what is in force, where it comes from, and variables that nothing obeys."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.arguments import PROGRAM_VARIABLES, SWITCHES, VARIABLES, unknown_variables
from lockcache.lowlevel import Policy
from lockcache_daemon.settings.model import DirectorySettings, Settings, settings_of
from lockcache_daemon.settings.sources import variable_of
from tests.cli.command import run
from tests.state_pages import policy_of, set_policy


def config(*words: str, **variables: str) -> dict[str, object]:
    return json.loads(run("config", "--json", *words, **variables).stdout)


def test_each_setting_says_where_it_comes_from(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    found = config(LOCKCACHE_DIR=str(cache_path), LOCKCACHE_MAX_SIZE="20G", LOCKCACHE_POLICY="cost")
    assert found["directory"] == {"value": str(cache_path), "origin": "$LOCKCACHE_DIR"}
    assert found["max_size_bytes"] == {"value": 20 * 10**9, "origin": "$LOCKCACHE_MAX_SIZE"}
    assert found["policy"] == {"value": "value", "origin": "$LOCKCACHE_POLICY"}
    assert found["readonly"] == found["disable"] == {"value": False, "origin": "the default"}
    assert config(str(cache_path), LOCKCACHE_DISABLE="on")["disable"] == {"value": True, "origin": "$LOCKCACHE_DISABLE"}
    assert found["signing_key_file"] == {"value": None, "origin": "the default"}
    with FileStreamProgramCache(cache_path, max_size_bytes=10**7):
        assert config(str(cache_path))["max_size_bytes"] == {
            "value": 10**7,
            "origin": "set by a program, in the directory",
        }


def test_an_operators_cap_counts_over_the_variable_and_says_so(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    set_policy(cache_path, Policy(10**7, by_operator=True))
    found = config(str(cache_path), LOCKCACHE_MAX_SIZE="20G")["max_size_bytes"]
    assert found["value"] == 10**7
    assert found["origin"].startswith("set by an operator, in the directory; $LOCKCACHE_MAX_SIZE=20.0 GB")


def test_the_default_directory_is_shown_with_the_cap_that_it_will_have(tmp_path: Path) -> None:
    found = config(XDG_CACHE_HOME=str(tmp_path), LOCKCACHE_DIR="")
    assert found["directory"]["value"] == str(tmp_path / "lockcache")
    assert found["max_size_bytes"] == {"value": 10 * 10**9, "origin": "the default, when it is made"}
    assert not (tmp_path / "lockcache").exists()


def test_a_variable_that_nothing_obeys_is_named_with_what_was_meant(cache_path: Path) -> None:
    ended = run("config", str(cache_path), LOCKCACHE_MAXSIZE="1G")
    assert ended.returncode == 0
    assert "LOCKCACHE_MAXSIZE is not a variable of lockcache's; did you mean LOCKCACHE_MAX_SIZE?" in ended.stderr
    ended = run("doctor", "--json", str(cache_path), LOCKCACHE_DIRR="x")
    assert '"unknown_variables": {"LOCKCACHE_DIRR": "LOCKCACHE_DIR"}' in ended.stdout


def test_the_documents_have_each_variable() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations" / "settings.md").read_text()
    assert re.findall(r"^\| `(LOCKCACHE_\w+)` \|", text, re.MULTILINE) == [*VARIABLES, *_of_the_daemon()]


def _of_the_daemon() -> list[str]:
    """The variables of the daemon's settings, in the order of its options, that programs do not obey as well."""
    keys = (*settings_of(DirectorySettings), *settings_of(Settings), "config")
    return [name for name in map(variable_of, keys) if name not in VARIABLES]


def test_commands_do_not_obey_the_variables_of_programs(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path, max_size_bytes=10**7).close()
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"code"
    stated = {"LOCKCACHE_MAX_SIZE": "5G", "LOCKCACHE_POLICY": "cost"} | dict.fromkeys(SWITCHES, "1")
    assert run("clear", "--yes", str(cache_path), **stated).returncode == 0
    assert run("doctor", str(cache_path), **{**stated, "LOCKCACHE_MAX_SIZE": "1B"}).returncode == 0
    assert policy_of(cache_path) == Policy(10**7)
    assert len(cache) == 0


# A file that is not there is not a mistake.
_FILES = ("LOCKCACHE_SEED", "LOCKCACHE_MANIFEST", "LOCKCACHE_SEAL_MANIFEST")


def test_a_variable_on_which_programs_fail_is_found(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    variables = [each for each in PROGRAM_VARIABLES if each not in _FILES]
    for command, variable in (("doctor", variables[0]), *(("config", each) for each in variables)):
        ended = run(command, str(cache_path), **{variable: "bogus"})
        assert ended.returncode == 2
        assert f"{variable}: 'bogus' is not" in " ".join((ended.stdout + ended.stderr).split())


@pytest.mark.parametrize(
    "name", [*map(variable_of, (*settings_of(Settings), *settings_of(DirectorySettings), "config")), *VARIABLES]
)
def test_no_variable_of_the_daemon_or_of_programs_is_taken_for_a_mistake(name: str) -> None:
    assert not unknown_variables({name: "1"})
    assert unknown_variables({f"{name}_X": "1"}) == {f"{name}_X": name}
