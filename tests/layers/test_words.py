# SPDX-License-Identifier: Apache-2.0
"""The check of words notices each of the faults that it names, and takes nothing else for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.layers import words
from tests.layers.words import BANNED, INVARIANTS, PROJECT, faults_in


def whys(tmp_path: Path, text: str, name: str = "module.py") -> list[str]:
    """Why each fault of this text is one, with its line."""
    path = tmp_path / name
    path.write_text(text)
    return [f"{fault.line}: {fault.why}" for fault in faults_in(path, name)]


#: Texts that have one fault, and what is said of it.
FAULTS = [
    ('"""What goes first."""\n', "1: a module's docstring"),
    ('def function():\n    """Whether it is."""\n', "2: a function's docstring begins with a verb"),
    ('@contextmanager\ndef function():\n    """How it is."""\n', "3: a function's docstring begins with a verb"),
    ('class Class:\n    async def method(self):\n        """Those."""\n', "3: a function's docstring begins with"),
    ('def function():\n    """As :func:`os.open`."""\n', '2: a docstring that is only "As X."'),
    ("# A miss is no error.\n", "1: "),
    ("# They were no\n# entries.\n", "1: "),
    ('"""Module.\n\nKeeps invariant 3.\n"""\n', "3: "),
    ('"""Module.\n\nInvariant 3 (death is free)\n"""\n', "3: "),
    *((f"x = 1  # the {word}\n", "1: ") for word in ("Whoever", "told", "anew", "dearest", "signs of life")),
    ('x = "the news"\n', "1: "),
    ('"""The ours."""\n', "1: "),
    ('say("What is missing is compiled.")\n', "1: a sentence whose subject is"),
    ('say("It is full. Who may write there decides;")\n', "1: a sentence whose subject is"),
    ('say("Files stay. One that is damaged goes.")\n', "1: a sentence whose subject is"),
    ('@click.command()\ndef command():\n    """Clear it. What was used stays."""\n', "3: a sentence whose subject is"),
    ("def beside(path):\n    return path\n", "1: a function named beside"),
]


@pytest.mark.parametrize("text, why", FAULTS)
def test_a_fault_is_found(text: str, why: str, tmp_path: Path) -> None:
    [found] = whys(tmp_path, text)
    assert found.startswith(why)


@pytest.mark.parametrize(
    "text",
    [
        '"""Whatever."""\n\nclass Class:\n    """What it is."""\n',
        'class Class:\n    @functools.cached_property\n    def name(self):\n        """Whether it is."""\n',
        'def function():\n    """Wherever it is."""\n',
        'def function():\n    """As :func:`x`, but quicker."""\n',
        "# where there\n# is no file\n",
        "# What is missing is compiled.\n",
        'say("What is missing?")\nsay("One process compiles. Who does what:")\n',
        "class Class:\n    def at(self):\n        return self\n",
        'beside = 1\n"""The ``beside`` and :func:`told`."""\nx = {"told": 1}\n',
        *(
            f'"""Module: invariant {number} ({name}), invariants 1 (a hit is whole) and {number} ({name})."""\n'
            for number, name in INVARIANTS.items()
        ),
    ],
)
def test_other_texts_are_in_order(text: str, tmp_path: Path) -> None:
    assert whys(tmp_path, text) == []


def test_a_page_is_prose_but_for_its_code(tmp_path: Path) -> None:
    assert whys(tmp_path, "The `beside`\n\n```console\n$ echo told\n```\n", "page.md") == []
    assert whys(tmp_path, "```text\ntold\n```\ntold\n", "page.md") == [
        f'4: "told": write {BANNED["told|tidings|news"]}'
    ]


def test_each_name_of_an_invariant_is_that_of_the_map() -> None:
    text = (PROJECT / "docs/internals/map.md").read_text()
    names = [f"Invariant {number} ({name})" for number, name in INVARIANTS.items()]
    assert [name for name in names if name not in text] == []


def test_a_fault_that_is_allowed_is_none_and_one_that_is_not_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.md").write_text("anew\n")
    monkeypatch.setattr(words, "PROJECT", tmp_path)
    monkeypatch.setattr(words, "CHECKED", ("page.md",))
    assert words.main() == 1
    assert capsys.readouterr().out == 'page.md:1: "anew": write again\nwords: 1 to write again\n'
    monkeypatch.setattr(words, "ALLOWED", {("page.md", '"anew": write again')})
    assert words.main() == 0
    (tmp_path / "page.md").write_text("again\n")
    assert words.main() == 1


def test_a_page_for_users_names_its_subjects(tmp_path: Path) -> None:
    text = "# What it is\n\nIt works. What is missing\nis compiled.\n\n- One process waits.\n- One that is not, goes.\n"
    assert [found.split(":")[0] for found in whys(tmp_path, text, "page.md")] == ["3", "7"]


def test_each_python_file_begins_with_its_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words.unlicensed_files() == []
    files = {
        "with.py": f"{words.LICENCE}\n",
        "run.py": f"#!/usr/bin/python\n{words.LICENCE}\n",
        "without.py": "import os\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "empty.py").touch()
    (tmp_path / "hatch_build.py").write_text(files["with.py"])
    monkeypatch.setattr(words, "PROJECT", tmp_path)
    monkeypatch.setattr(words, "checked_files", lambda: [tmp_path / name for name in (*files, "empty.py")])
    assert [fault.file for fault in words.unlicensed_files()] == ["without.py"]
    words.add_licences()
    assert words.unlicensed_files() == []
    assert (tmp_path / "without.py").read_text() == f"{words.LICENCE}\nimport os\n"
