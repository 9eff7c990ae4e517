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


@pytest.mark.parametrize("word", ["What", "Which", "Whether", "How", "Who"])
def test_a_module_says_first_what_it_provides(word: str, tmp_path: Path) -> None:
    assert whys(tmp_path, f'"""{word} goes first."""\n')[0].startswith("1: a module's docstring")
    assert whys(tmp_path, f'"""Whatever {word}."""\n\nclass Class:\n    """{word} it is."""\n') == []


FIRST_WORDS = ["What", "Whether", "Which", "Whose", "How", "Who", "When", "Where", "Those"]


@pytest.mark.parametrize("word", FIRST_WORDS)
@pytest.mark.parametrize("head", ["def", "async def", "@contextmanager\ndef", "@functools.cache\ndef"])
def test_a_function_says_first_what_it_does(head: str, word: str, tmp_path: Path) -> None:
    found = whys(tmp_path, f'{head} function():\n    """{word} it is."""\n')
    assert [why.partition(" ")[2] for why in found] == [
        f"a function's docstring begins with a verb (Returns, Yields, Raises), not with {word}"
    ]


@pytest.mark.parametrize("word", FIRST_WORDS)
def test_a_method_is_a_function(word: str, tmp_path: Path) -> None:
    assert len(whys(tmp_path, f'class Class:\n    def method(self):\n        """{word} it is."""\n')) == 1


@pytest.mark.parametrize("word", FIRST_WORDS)
@pytest.mark.parametrize("decorator", ["property", "cached_property", "functools.cached_property", "name.setter"])
def test_a_property_names_a_value(decorator: str, word: str, tmp_path: Path) -> None:
    text = f'class Class:\n    @{decorator}\n    def name(self):\n        """{word} it is."""\n'
    assert whys(tmp_path, text) == []


@pytest.mark.parametrize("text", ["Returns what is there.", "Check whether.", "Whatever it is.", "Wherever it is."])
def test_a_function_that_begins_with_another_word_is_in_order(text: str, tmp_path: Path) -> None:
    assert whys(tmp_path, f'def function():\n    """{text}"""\n') == []


@pytest.mark.parametrize("text", ["As X.", "As :func:`os.open`.", "As ``x.y`` has it."])
def test_a_docstring_says_in_what_it_differs(text: str, tmp_path: Path) -> None:
    assert whys(tmp_path, f'def function():\n    """{text}"""\n') == ['2: a docstring that is only "As X."']


@pytest.mark.parametrize("text", ["As :func:`x`, but quicker.", "As X. Requires: a lock.", "Open, as X does."])
def test_a_docstring_that_says_more_than_as_is_in_order(text: str, tmp_path: Path) -> None:
    assert whys(tmp_path, f'def function():\n    """{text}"""\n') == []


@pytest.mark.parametrize("text", ["A miss is no error.", "They were no\n# entries.", "is no such file"])
def test_what_is_not_something_is_said_so(text: str, tmp_path: Path) -> None:
    assert len(whys(tmp_path, f"# {text}\n")) == 1


@pytest.mark.parametrize(
    "text", ["There is no file.", "where there\n# is no file", "it is no longer there", "no file is"]
)
def test_that_there_is_none_is_in_order(text: str, tmp_path: Path) -> None:
    assert whys(tmp_path, f"# {text}\n") == []


@pytest.mark.parametrize(
    "text",
    ["Keeps invariant 3.", "(invariant\n7)", "Invariant 3 (death is free)", "invariants 3 (hard cap) and 5 by it"],
)
def test_an_invariant_without_its_own_name_is_a_fault(text: str, tmp_path: Path) -> None:
    assert len(whys(tmp_path, f'"""Module.\n\n{text}\n"""\n')) == 1


@pytest.mark.parametrize("number", INVARIANTS)
def test_an_invariant_with_its_name_is_in_order(number: int, tmp_path: Path) -> None:
    name = INVARIANTS[number]
    text = f"invariant {number} ({name}), (invariant {number}, {name}), invariant {number} ({name}: more)"
    assert whys(tmp_path, f'"""Module: {text}, invariants 1 (a hit is whole) and {number} ({name})."""\n') == []


def test_each_name_of_an_invariant_is_that_of_the_map() -> None:
    text = (PROJECT / "docs/internals/map.md").read_text()
    assert [
        f"Invariant {number} ({name})"
        for number, name in INVARIANTS.items()
        if f"Invariant {number} ({name})" not in text
    ] == []


@pytest.mark.parametrize(
    "word", ["Whoever", "told", "news", "mended", "anew", "beside", "dearest", "ours", "signs of life"]
)
def test_a_banned_word_is_found_wherever_people_read_it(word: str, tmp_path: Path) -> None:
    places = {
        "docstring": f'"""The {word}."""\n',
        "comment": f"x = 1  # the {word}\n",
        "message": f'x = "the {word}"\n',
    }
    assert [place for place, text in places.items() if len(whys(tmp_path, text)) != 1] == []
    assert len(whys(tmp_path, f"The\n\n{word}\n", "page.md")) == 1


def test_code_is_not_prose(tmp_path: Path) -> None:
    assert whys(tmp_path, 'beside = 1\n"""The ``beside`` and :func:`told`."""\nx = {"told": 1}\n') == []
    assert whys(tmp_path, "The `beside`\n\n```console\n$ echo told\n```\n", "page.md") == []
    assert whys(tmp_path, "```text\ntold\n```\ntold\n", "page.md") == [
        f'4: "told": write {BANNED["told|tidings|news"]}'
    ]


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
