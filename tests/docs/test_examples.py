# SPDX-License-Identifier: Apache-2.0
"""Every example in the documents does what it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lockcache.cli.program import COMMANDS
from tests.docs.console import inside
from tests.docs.follow_page import follow_twice
from tests.docs.pages import PAGES, PROJECT, TYPED_AGAIN, Block, blocks, name
from tests.matrix_sampling import all_but

# Run or read here. "text" is not an example: drawings, parts of files, what is said elsewhere.
LANGUAGES = {"python", "console", "toml", "yaml", "json", "text"}
# Each is one thing that a reader has to believe. Raise it only for what cannot be had here.
MOST_NOT_RUN = 14

EXAMPLES = [block for page in PAGES for block in blocks(page) if not block.language.startswith("{")]
NOT_RUN = [block for block in EXAMPLES if block.no_run]


#: What a newcomer reads first, and what the others are written against.
BEGINNING = ("README.md", "CONTRIBUTING.md", "quickstart.md", "cuda-core.md", "lowlevel.md", "design.md")


@pytest.mark.cuda
@pytest.mark.timeout(300)  # thirty programs, one after the other
@pytest.mark.parametrize("page", all_but([page for page in PAGES if page.name in BEGINNING], PAGES), ids=name)
def test_the_examples_of_a_page_run_in_order_and_say_what_it_shows_twice(page: Path, tmp_path: Path) -> None:
    follow_twice(sys.executable, page, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", ["jax", "triton"])
def test_what_needs_a_framework_runs_where_it_is_installed(framework: str, tmp_path: Path) -> None:
    environment = PROJECT / "build" / "frameworks" / framework
    if not (environment / "stamp").exists():
        pytest.skip(f"{framework} is not installed: make frameworks FRAMEWORKS={framework}")
    follow_twice(
        environment / "bin" / "python", PROJECT / "docs" / "guides" / "frameworks" / f"{framework}.md", tmp_path
    )


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_a_block_of_code_has_a_language_that_is_run_or_read(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.language != "console" or block.text.startswith("$ "), "commands stand behind `$ `"


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_a_block_that_cannot_run_here_says_why(block: Block) -> None:
    pytest.skip(block.no_run)


def test_few_blocks_cannot_run_here() -> None:
    assert len(NOT_RUN) <= MOST_NOT_RUN, "\n".join(f"{block}: {block.no_run}" for block in NOT_RUN)


@pytest.mark.parametrize("page", TYPED_AGAIN, ids=name)
def test_a_page_shows_all_that_its_examples_need(page: Path) -> None:
    """Nothing that a reader cannot see: no file without its name in the text, no folder that we move."""
    text, shown = page.read_text(), [block for block in blocks(page) if not block.no_run]
    assert [block.file for block in shown if block.file and f"`{block.file}`" not in text] == []
    moved = [
        block
        for block in shown
        if block.language in ("python", "console") and inside(block.text, "elsewhere") != block.text
    ]
    assert [str(block) for block in moved] == []


def test_every_command_has_an_example_that_is_run() -> None:
    shown = {word for block in EXAMPLES for word in re.findall(r"^\$ lockcache ([\w-]+)", block.text, re.MULTILINE)}
    assert shown >= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    named = set(
        re.findall(r"`((?:tests|lockcache|daemon|stress|docs)/[\w/.-]+\.(?:py|md|yaml|toml|sh))`", page.read_text())
    )
    assert [path for path in sorted(named) if not (PROJECT / path).exists()] == []
