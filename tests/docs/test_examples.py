"""Every example in the documents does what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockcache.cli.program import COMMANDS
from lockcache_daemon.settings.sources import Sources
from tests.docs.console import Console, environment, steps
from tests.docs.pages import PAGES, PROJECT, Block, blocks, name
from tests.thinning import all_but

# Run or read here. "text" is no example: drawings, parts of files, what is said elsewhere.
LANGUAGES = {"python", "console", "toml", "yaml", "json", "text"}
# Each is one thing that a reader has to believe. Raise it only for what cannot be had here.
MOST_NOT_RUN = 14

EXAMPLES = [block for page in PAGES for block in blocks(page) if not block.language.startswith("{")]
NOT_RUN = [block for block in EXAMPLES if block.no_run]


#: What a newcomer reads first, and what the others are written against.
BEGINNING = ("README.md", "CONTRIBUTING.md", "quickstart.md", "lowlevel.md", "design.md")


@pytest.mark.cuda
@pytest.mark.timeout(300)  # thirty programs, one after the other
@pytest.mark.parametrize("page", all_but([page for page in PAGES if page.name in BEGINNING], PAGES), ids=name)
def test_the_examples_of_a_page_run_in_order_and_say_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("home/.config", "work", "scratch", "shared", "etc", "golden", "image", "var/lib"):
        (tmp_path / folder).mkdir(mode=0o700, parents=True)
    monkeypatch.chdir(tmp_path / "work")
    for variable in ("LOCKCACHE_DIR", "LOCKCACHE_GROUP", "LOCKCACHE_SIGNING_KEY_FILE"):
        monkeypatch.delenv(variable, raising=False)
    variables = environment(tmp_path)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    console = Console(tmp_path, variables)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks(page):
            if not block.no_run and not (block.needs and shutil.which(block.needs) is None):
                _run(block, console, names, tmp_path)
    finally:
        console.close()


def _run(block: Block, console: Console, names: dict[str, Any], root: Path) -> None:
    text = console.inside(block.text)
    if block.file:
        (root / "work" / console.inside(block.file)).write_text(text)
    elif block.language == "python":
        # Padded, so that a traceback names the line of the page.
        exec(compile("\n" * block.line + text, str(block.page), "exec"), names)
    elif block.language == "console":
        for step in steps(block.text):
            try:
                console.run(step)
            except AssertionError as error:
                raise AssertionError(f"{block}: {error}") from error
    if block.language == "toml":
        config = root / "settings.toml"
        config.write_text(text)
        Sources({}, (), str(config), {}).load()
    elif block.language in ("yaml", "json"):
        assert list(yaml.safe_load_all(block.text))


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_a_block_of_code_has_a_language_that_is_run_or_read(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.language != "console" or block.text.startswith("$ "), "commands stand behind `$ `"


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_a_block_that_cannot_run_here_says_why(block: Block) -> None:
    pytest.skip(block.no_run)


def test_few_blocks_cannot_run_here() -> None:
    assert len(NOT_RUN) <= MOST_NOT_RUN, "\n".join(f"{block}: {block.no_run}" for block in NOT_RUN)


def test_every_command_has_an_example_that_is_run() -> None:
    shown = {word for block in EXAMPLES for word in re.findall(r"^\$ lockcache ([\w-]+)", block.text, re.MULTILINE)}
    assert shown >= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(
        re.findall(r"`((?:tests|lockcache|daemon|stress|docs)/[\w/.-]+\.(?:py|md|yaml|toml|sh))`", page.read_text())
    )
    assert [path for path in sorted(named) if not (PROJECT / path).exists()] == []
