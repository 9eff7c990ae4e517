# SPDX-License-Identifier: Apache-2.0
"""Headers that a source reaches: ``lockcache.headers`` next to a real preprocessor, over random trees of headers.

The preprocessor (GCC's) searches as NVRTC does in all that these trees have: quotes next to the including file and then
along the include path, angle brackets along the path alone, the first one found wins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lockcache.headers import fingerprint
from tests.properties.examples import examples

_CPP = shutil.which("cpp")
pytestmark = pytest.mark.skipif(_CPP is None, reason="needs cpp, GCC's preprocessor")

_FOLDERS = ["", "one", "two", "one/deep", "three"]
_NAMES = ["a.h", "b.h", "c", "deep/a.h", "deep/b.h", "../a.h", "./b.h", "one/a.h"]

_directives = st.lists(st.tuples(st.sampled_from(_NAMES), st.booleans(), st.booleans()), max_size=4)
_places = (
    st.tuples(st.sampled_from(_FOLDERS), st.sampled_from(["a.h", "b.h", "c"]))
    .map("/".join)
    .map(lambda p: p.lstrip("/"))
)
_trees = st.dictionaries(_places, _directives, min_size=1, max_size=8)
_search = st.lists(st.sampled_from(["one", "two", "one/deep", "three", "absent"]), max_size=4, unique=True)
_sources = st.sampled_from(["main.cu", "one/main.cu", "three/main.cu"])


def text_of(directives: list[tuple[str, bool, bool]], mark: str) -> str:
    """A file with these includes, each quoted or angled, within a conditional or not; read once."""
    guard = "GUARD_" + "".join(letter if letter.isalnum() else "_" for letter in mark)
    lines = [f"#ifndef {guard}", f"#define {guard}"]
    for name, quoted, conditional in directives:
        line = f'#include "{name}"' if quoted else f"#include <{name}>"
        lines += [f"#if 1\n{line}\n#endif"] if conditional else [line]
    return "\n".join([*lines, "#endif", ""])


@contextmanager
def tree_of(files: dict[str, list[tuple[str, bool, bool]]]) -> Iterator[Path]:
    before, root = os.getcwd(), Path(tempfile.mkdtemp(prefix="lockcache-includes-"))
    for folder in [*_FOLDERS, "far/empty"]:
        (root / folder).mkdir(exist_ok=True, parents=True)
    for place, directives in files.items():
        (root / place).write_text(text_of(directives, place))
    os.chdir(root)
    try:
        yield root
    finally:
        os.chdir(before)
        shutil.rmtree(root)


def reached(source: str, search: list[str]) -> set[str]:
    """Returns the files that the preprocessor read, below the working directory."""
    # All paths are absolute, so that the names which it did not find, and gives as they are, can be recognized.
    here = os.getcwd()
    # The last one is empty, and nothing is next to it: with no directory to search a missing name is an error.
    folders = [f"-I{here}/{folder}" for folder in [*search, "far/empty"]]
    command = [str(_CPP), "-x", "c++", "-nostdinc", "-M", "-MG", *folders, f"{here}/{source}"]
    rule = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = rule.replace("\\\n", " ").partition(":")[2].split()
    return {os.path.relpath(os.path.realpath(name)) for name in names if os.path.isabs(name)} - {source}


def digest(source: str, search: list[str]) -> bytes:
    return fingerprint(Path(source).read_text(), search, name=source)


@examples(25)
@given(files=_trees, directives=_directives, search=_search, source=_sources)
def test_a_header_counts_if_the_preprocessor_reads_it_and_not_otherwise(files, directives, search, source):
    with tree_of(files):
        Path(source).write_text(text_of(directives, source))
        read = reached(source, search)
        assert read <= set(files)
        for place in files:
            before = digest(source, search)
            with open(place, "a") as file:
                file.write("// more\n")
            assert (digest(source, search) != before) == (place in read), place


@examples(25)
@given(files=_trees, directives=_directives, search=_search, source=_sources, added=_places)
def test_a_new_file_that_changes_what_is_read_changes_the_digest(files, directives, search, source, added):
    with tree_of(files):
        Path(source).write_text(text_of(directives, source))
        read, before = reached(source, search), digest(source, search)
        if added not in files:
            Path(added).write_text("// new\n")
            if reached(source, search) != read:
                assert digest(source, search) != before


@examples(25)
@given(files=_trees, directives=_directives, search=_search, source=_sources, gone=st.integers(0, 7))
def test_a_file_that_goes_and_was_read_changes_the_digest(files, directives, search, source, gone):
    with tree_of(files):
        Path(source).write_text(text_of(directives, source))
        place = sorted(files)[gone % len(files)]
        read, before = reached(source, search), digest(source, search)
        os.unlink(place)
        assert (digest(source, search) != before) == (place in read)


@examples(15)
@given(files=_trees, directives=_directives, search=_search, other=_search, source=_sources)
def test_another_search_order_that_leads_elsewhere_is_another_digest(files, directives, search, other, source):
    """Every file is another one, so two orders that read other files cannot give one program by chance."""
    with tree_of(files):
        Path(source).write_text(text_of(directives, source))
        if reached(source, search) != reached(source, other):
            assert digest(source, search) != digest(source, other)
