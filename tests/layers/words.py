# SPDX-License-Identifier: Apache-2.0
"""The mechanical rules of plain language, which ``make words`` checks: in comments, docstrings, messages and documents.

- A module's docstring begins with what it provides, not with What, Which, Whether, How or Who.
- A function's docstring is in the imperative, or "Returns ...", "Yields ...", "Raises ...": it does not begin with a
  relative clause (What, Whether, Which, Whose, How, Who, When, Where, Those). Properties name a value, and may.
- No docstring is only "As X.": it says in what it differs.
- "is not a", never "is no"; "there is no" is ordinary English.
- An invariant is named next to its number: "invariant 3 (hard cap)".
- In pages for users, help texts and messages no sentence has "what", "who" or a bare "one" as its subject ("What is
  missing is compiled"): the thing is named. Questions and headings may.
- No function of the programs is named by a preposition alone (``among``): its name says what it does.
- None of :data:`BANNED`, words that only the authors of this project understand at once.

- A Python file begins with its licence, as SPDX writes it.

Code in the text (between backticks, or in a block) is not prose, and does not count. How many files a folder may have
is the contract "doors" (:mod:`tests.layers.doors`).
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).parents[2]

#: The checked files and folders.
CHECKED: Final = ("lockcache", "daemon", "stress", "tests", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md")

#: A file of faults, by which the check is tested.
UNCHECKED: Final = "tests/layers/test_words.py"

#: The first line of each Python file.
LICENCE: Final = "# SPDX-License-Identifier: Apache-2.0"
#: A recipe for Spack begins as Spack has it.
OF_OTHERS: Final = (PROJECT / "docs" / "recipes" / "spack" / "package.py",)

#: Exceptions, as (file, message), each with its reason. None is needed now.
ALLOWED: Final[frozenset[tuple[str, str]]] = frozenset()

#: What to write instead.
BANNED: Final = {
    r"whoever": "a process that, the one that",
    r"told|tidings|news": "reported, informed",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"anew": "again",
    r"beside": "next to",
    r"dear(?:er|est)?": "expensive",
    r"ours|theirs": "its owner's name",
    r"signs? of life": "heartbeat, progress",
}

INVARIANTS: Final = {
    1: "a hit is whole",
    2: "last write wins",
    3: "hard cap",
    4: "readers never wait",
    5: "death is free",
    6: "locks coordinate",
    7: "never take the job down",
}

_FIRST_WORD: Final = re.compile(r"(What|Which|Whether|How|Who)\b")
_FIRST_WORD_OF_FUNCTION: Final = re.compile(r"(What|Whether|Which|Whose|How|Who|When|Where|Those)\b")
_ONLY_AS: Final = re.compile(r"As (?:[^.,;]|\.(?=\S))*\.")
_IS_NO: Final = re.compile(
    r"\b(?:is|are|was|were)\s+no\s+(?!longer\b|more\b|other\b|better\b|less\b|larger\b|younger\b)", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"\binvariants?\s+(\d)\b", re.IGNORECASE)
# The next number in a list, after a name in parentheses.
_NEXT_NUMBER: Final = re.compile(r"\binvariants?\s+\d \([^()]*\),?\s+(?:and|to)\s+(\d)\b", re.IGNORECASE)
_BANNED: Final = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead) for pattern, instead in BANNED.items()]

# At the beginning of a sentence, which ends with a full stop or a semicolon, and is neither a question nor a heading.
_NO_SUBJECT: Final = re.compile(
    r"(?:\A|(?<=[.!?:;]\s)|(?<=\n\n)|(?<=- )|(?<=\| ))"
    r"((?:What|Who)(?:ever)?\s(?!is\b[^.]*\?)|One (?:that|which|who|is|has|may|can)\b)"
    r"(?=[^?:|\n]*(?:\n[^?:|\n]+)*[.;|])"
)
_FOR_USERS: Final = ("help", "message", "page")
#: Pages for those who work on the project.
_OF_DEVELOPERS: Final = re.compile(
    r"docs/(decisions|internals)/|docs/(design|testing|stress)\.md|CONTRIBUTING|tests/|stress/"
)

PREPOSITIONS: Final = re.compile(
    r"about|above|across|after|along|among|around|at|before|behind|below|beneath|[b]eside|besides|between|beyond|by|"
    r"despite|during|except|inside|into|near|of|off|on|onto|out|outside|over|per|since|through|throughout|to|towards?|"
    r"under|until|unlike|up|upon|via|within|without"
)

_CODE: Final = re.compile(r"``.*?``|:\w+:`.*?`|`[^`\n]*`", re.DOTALL)
_FENCE: Final = re.compile(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", re.MULTILINE | re.DOTALL)


class Fault(NamedTuple):
    """A sentence that has to be rewritten."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


class Prose(NamedTuple):
    """A text for people."""

    line: int
    text: str
    #: ``module``, ``function`` or ``docstring`` (a class's or a property's), ``help`` (a command's), ``message``,
    #: ``page``; empty for a comment.
    kind: str = ""


def faults_in(path: Path, file: str) -> Iterator[Fault]:
    """Yields every fault of a module or a page."""
    text = path.read_text()
    found = _of_page(text) if path.suffix == ".md" else _of_module(text)
    if path.suffix == ".py" and not file.startswith("tests/"):
        yield from (Fault(file, line, why) for line, why in _names(text))
    for prose in found:
        is_for_users = prose.kind == "help" or (prose.kind in _FOR_USERS and not _OF_DEVELOPERS.match(file))
        for offset, why in (*_faults(prose), *(_without_subject(prose.text) if is_for_users else ())):
            yield Fault(file, prose.line + prose.text.count("\n", 0, offset), why)


def _faults(prose: Prose) -> Iterator[tuple[int, str]]:
    if prose.kind == "module" and (first := _FIRST_WORD.match(prose.text)):
        yield 0, f"a module's docstring begins with what it provides, not with {first[1]}"
    if prose.kind == "function" and (first := _FIRST_WORD_OF_FUNCTION.match(prose.text)):
        yield 0, f"a function's docstring begins with a verb (Returns, Yields, Raises), not with {first[1]}"
    if prose.kind in ("module", "function", "docstring", "help") and _ONLY_AS.fullmatch(prose.text.strip()):
        yield 0, 'a docstring that is only "As X."'
    text = _without_code(prose.text)
    for match in _IS_NO.finditer(text):
        if text[: match.start()].rstrip().lower().endswith("there"):
            continue
        yield match.start(), f'"{" ".join(match[0].split())}": write "is not a"'
    for match in (*_NUMBER.finditer(text), *_NEXT_NUMBER.finditer(text)):
        name = INVARIANTS.get(int(match[1]), "")
        if not re.match(rf"(?:'s)?[\s:,(]+{name.replace(' ', chr(92) + 's+')}", text[match.end() :]):
            yield match.start(), f'"{" ".join(match[0].split())}" without its name: "invariant {match[1]} ({name})"'
    for pattern, instead in _BANNED:
        for match in pattern.finditer(text):
            yield match.start(), f'"{match[0]}": write {instead}'


def _without_subject(text: str) -> Iterator[tuple[int, str]]:
    for match in _NO_SUBJECT.finditer(_without_code(text)):
        yield match.start(), f'a sentence whose subject is "{match[1].split()[0].lower()}": name the thing'


def _names(text: str) -> Iterator[tuple[int, str]]:
    """Yields the functions whose name is a preposition alone, with their lines."""
    for node in ast.parse(text).body:  # a method's object is named at each call: ``mounts.at(path)``
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and PREPOSITIONS.fullmatch(node.name.strip("_")):
            yield node.lineno, f"a function named {node.name}: a preposition says nothing alone"


def _without_code(text: str) -> str:
    """Returns the text with blanks in place of its code, so that all positions stay the same."""
    return _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def _of_page(text: str) -> Iterator[Prose]:
    yield Prose(1, _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text), "page")


def _of_module(text: str) -> Iterator[Prose]:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield Prose(first.lineno, first.value.value, _kind(node))
    yield from _comments(text)
    yield from _messages(tree)


def _kind(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.Module):
        return "module"
    if any(re.search(r"\b(command|group)\b", ast.unparse(each)) for each in node.decorator_list):
        return "help"
    return "docstring" if isinstance(node, ast.ClassDef) or _is_property(node) else "function"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Returns whether a method is read as an attribute: by ``@property``, ``@cached_property`` or a setter of one."""
    names = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return any(name in ("property", "cached_property", "setter") for name in names)


def _comments(text: str) -> Iterator[Prose]:
    """Yields comments; comments on successive lines are one."""
    begin, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != begin + len(lines):
            yield Prose(begin, "\n".join(lines))
            lines = []
        if not lines:
            begin = token.start[0]
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield Prose(begin, "\n".join(lines))


def _messages(tree: ast.AST) -> Iterator[Prose]:
    """Yields strings of more than one word that are not docstrings, as each string that is a statement is."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in docstrings
        ):
            yield Prose(node.lineno, node.value, "message")


def checked_files() -> Iterator[Path]:
    """Yields all checked files."""
    for name in CHECKED:
        place = PROJECT / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (path for path in files if path.suffix in (".py", ".md") and path != PROJECT / UNCHECKED)


def unlicensed_files() -> list[Fault]:
    """Returns each Python file that does not begin with its licence; behind ``#!``, if that is its first line."""
    checked = [path for path in checked_files() if path.suffix == ".py"]
    paths = sorted({*checked, *PROJECT.glob("*.py"), *(PROJECT / "scripts").glob("*.py")})
    found = []
    for path in paths:
        lines = [line for line in path.read_text().splitlines()[:2] if not line.startswith("#!")]
        if path.stat().st_size and lines[0] != LICENCE and path not in OF_OTHERS:
            found.append(Fault(path.relative_to(PROJECT).as_posix(), 1, f"begin with: {LICENCE}"))
    return found


def add_licences() -> None:
    """Give each Python file that lacks it its first line."""
    for fault in unlicensed_files():
        path = PROJECT / fault.file
        first, rest = path.read_text().split("\n", 1)
        path.write_text(f"{first}\n{LICENCE}\n{rest}" if first.startswith("#!") else f"{LICENCE}\n{first}\n{rest}")


def main() -> int:
    """Print every fault, after licences were added with ``--add-licences``. Returns 1 if there is any."""
    if sys.argv[1:] == ["--add-licences"]:
        add_licences()
    found = [fault for path in checked_files() for fault in faults_in(path, path.relative_to(PROJECT).as_posix())]
    found += unlicensed_files()
    faults: list[object] = [fault for fault in found if (fault.file, fault.why) not in ALLOWED]
    faults += [f"{file}: {why} is allowed and not there" for file, why in ALLOWED - {(f.file, f.why) for f in found}]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"words: {len(faults)} to write again" if faults else "words: in order")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
