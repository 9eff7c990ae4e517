"""lockcache.headers: every file that a source can reach counts, and so does every place where one might appear."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.errors import UncacheableError
from lockcache.headers import computed, files, fingerprint, memo, source

Tree = Callable[[dict[str, str]], None]


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """No test profits from what an earlier one left behind."""
    memo._closures.clear()
    files._contents.clear()
    computed._said.clear()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough at once, so that what is remembered is used: nobody can set a ctime back."""
    monkeypatch.setattr(files, "_RACY_NS", 0)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Writes files below the working directory, which is an empty one. ``->x`` makes a link."""
    monkeypatch.chdir(tmp_path)

    def write(contents: dict[str, str]) -> None:
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith("->"):
                path.symlink_to(content[2:])
            else:
                path.write_text(content)

    return write


def changes(code: str, change: Callable[[], object], **arguments: Any) -> bool:
    """Whether the fingerprint is another one after ``change``."""
    before = fingerprint(code, **arguments)
    assert fingerprint(code, **arguments) == before
    change()
    return fingerprint(code, **arguments) != before


def rewrites(name: str) -> Callable[[], object]:
    return lambda: Path(name).write_text("// another one\n")


# ---- which directives count ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        '#include "h.h"',
        '#include"h.h"',
        "#include <h.h>",
        '\t#\v include\f"h.h" garbage',
        '#if 0\n#include "h.h"\n#endif',
        '#ifdef NEVER\n#else\n#include "h.h"\n#endif',
        '/**/#/**/include/**/"h.h"',
        '/*\n*/#include "h.h"',
        '#include/*\n*/"h.h"',
        '#inc\\\nlude "h.h"',
        '#inc\\\r\nlude "h.h"',
        '#include "h\\\n.h"',
        '/\\\n/ a comment\n#include "h.h"',
        '%:include "h.h"',
        '??=include "h.h"',
        '#inc??/\nlude "h.h"',
        '// ??/\n#include "h.h"',
        '// #include /*\n#include "h.h"\n/* */',
        '// # /*\n#include "h.h"\n// */ include "nothing.h"',
        '// __has_include /*\n#include "h.h"\n// */ (',
        '"/*"\n#include "h.h"\n"*/"',
        'const char *s = "http://";\n#include "h.h"',
        '#include_next "h.h"',
        '#include "h.h/"',
        '#include "./h.h"',
        '#include "sub/../h.h"',
        '#include "sub//..//h.h"',
        '#import "h.h"',
        '#embed "h.h"',
        "int a;\r\n#include <h.h>\r\n",
    ],
)
def test_a_directive_counts_however_it_is_written(tree: Tree, code: str) -> None:
    tree({"h.h": "", "sub/x": ""})
    assert changes(code, rewrites("h.h"), include_path=".")


@pytest.mark.parametrize(
    "code",
    [
        '// #include "h.h"',
        '//! #include "h.h"',
        '/*\n * #include "h.h"\n */',
        'int x; #include "h.h"',
        '#included "h.h"',
        "#ifdef __has_include\n#endif\n#if defined(__has_include)\n#define __has_include(x) 0\n#endif",
        "// __has_include(x) asks for a file",
    ],
)
def test_the_documentation_in_a_comment_does_not_count(tree: Tree, code: str, caplog: pytest.LogCaptureFixture) -> None:
    tree({"h.h": ""})
    assert not changes(code, rewrites("h.h"), include_path=".")
    assert not caplog.records


def test_headers_are_followed_through_headers_and_cycles(tree: Tree) -> None:
    tree({"a.h": '#include "b.h"', "b.h": '#include "a.h"\n#include "./b.h"\n#include "c.h"', "c.h": ""})
    assert changes('#include "a.h"', rewrites("c.h"))


def test_a_link_to_a_directory_above_ends(tree: Tree) -> None:
    tree({"up": "->.", "h.h": '#include "up/h.h"\n#include "c.h"', "c.h": ""})
    assert changes('#include "up/h.h"', rewrites("c.h"))


# ---- where names are looked for --------------------------------------------------------------------------------------


@pytest.mark.parametrize("added", ["h.h", "a/h.h"])
def test_a_header_that_newly_shadows_another_changes_the_digest(tree: Tree, added: str) -> None:
    tree({"b/h.h": "same", "a/x": "", "c/h.h": ""})
    code, path = '#include "h.h"', ["a", "b", "c"]
    assert changes(code, lambda: tree({added: "same"}), include_path=path)


def test_a_header_behind_the_one_that_is_found_does_not_count(tree: Tree) -> None:
    tree({"a/h.h": "", "b/h.h": ""})
    assert not changes("#include <h.h>", rewrites("b/h.h"), include_path=["a", "b"])


def test_a_shadow_in_a_directory_that_was_missing_counts(tree: Tree, settled: None) -> None:
    tree({"b/x/y/h.h": ""})
    code, path = "#include <x/y/h.h>", ["a", "b"]
    assert not changes(code, Path("a").mkdir, include_path=path)
    assert not changes(code, Path("a/x").mkdir, include_path=path)
    assert changes(code, lambda: tree({"a/x/y/h.h": ""}), include_path=path)


def test_a_missing_header_is_no_error_and_counts_when_it_appears(tree: Tree, settled: None) -> None:
    tree({"x": ""})
    assert changes('#include "sub/h.h"', lambda: tree({"sub/h.h": ""}))
    assert changes('#include "sub/h.h"', lambda: Path("sub/h.h").unlink())


def test_quotes_look_beside_the_including_file_and_angle_brackets_do_not(tree: Tree) -> None:
    tree({"a/n.h": '#include "h.h"', "a/m.h": "#include <h.h>", "a/h.h": ""})
    assert changes('#include "a/n.h"', rewrites("a/h.h"))
    assert not changes('#include "a/m.h"', lambda: Path("a/h.h").write_text("//"))
    assert not changes('#include "a/n.h"', rewrites("a/h.h"), no_source_include=True)


def test_quotes_do_not_look_beside_the_files_above(tree: Tree) -> None:
    tree({"a/n.h": '#include "b/m.h"', "a/b/m.h": '#include "h.h"', "a/h.h": "", "h.h": ""})
    assert not changes('#include "a/n.h"', lambda: (rewrites("a/h.h")(), rewrites("h.h")()))


def test_the_source_lies_where_its_name_says(tree: Tree) -> None:
    tree({"h.h": "", "sub/h.h": ""})
    assert changes('#include "h.h"', rewrites("sub/h.h"), name="sub/x.cu")
    assert not changes('#include "h.h"', rewrites("h.h"), name="sub/x.cu")
    assert not changes('#include "h.h"', lambda: Path("h.h").write_text(""), name="sub/x.cu", no_source_include=True)


def test_pre_includes_come_from_the_working_directory_then_from_include_path(tree: Tree) -> None:
    tree({"a/p.h": "", "sub/p.h": ""})
    arguments: dict[str, Any] = {"pre_include": "p.h", "include_path": "a", "name": "sub/x.cu"}
    assert changes("", rewrites("a/p.h"), **arguments)
    assert not changes("", rewrites("sub/p.h"), **arguments)
    assert changes("", lambda: tree({"p.h": '#include "q.h"'}), no_source_include=True, **arguments)
    assert changes("", lambda: tree({"q.h": ""}), **arguments)


def test_the_order_of_pre_includes_counts(tree: Tree) -> None:
    tree({"p.h": "1", "q.h": "2"})
    assert fingerprint("", (), ["p.h", "q.h"]) != fingerprint("", (), ["q.h", "p.h"])


def test_the_order_of_include_path_counts(tree: Tree) -> None:
    tree({"a/h.h": "1", "b/h.h": "2"})
    assert fingerprint("#include <h.h>", ["a", "b"]) != fingerprint("#include <h.h>", ["b", "a"])


def test_an_absolute_name_is_that_file(tree: Tree, tmp_path: Path) -> None:
    tree({"far/h.h": ""})
    assert changes(f"#include <{tmp_path}/far/h.h>", rewrites("far/h.h"))
    assert changes("", lambda: Path("far/h.h").unlink(), pre_include=tmp_path / "far" / "h.h")


def test_every_place_counts_for_include_next(tree: Tree) -> None:
    tree({"a/h.h": "#include_next <h.h>", "b/h.h": "", "c/h.h": ""})
    path = ["a", "b", "c"]
    assert changes("#include <h.h>", rewrites("b/h.h"), include_path=path)
    assert changes("#include <h.h>", rewrites("c/h.h"), include_path=path)


def test_a_name_without_a_dot_may_be_a_stdh(tree: Tree) -> None:
    tree({"a/x": "", "b/vector": ""})
    assert changes("#include <vector>", lambda: tree({"a/vector.stdh": ""}), include_path=["a", "b"])
    assert changes("#include <vector>", lambda: tree({"a/vector": ""}), include_path=["a", "b"])


def test_directories_and_devices_are_passed_over(tree: Tree, settled: None) -> None:
    tree({"a/h.h/x": "", "b/h.h": "->/dev/null", "c/h.h": "->nowhere", "d/h.h": "->h.h", "e/h.h": ""})
    os.mkdir("f")
    os.mkfifo("f/h.h")
    path = ["a", "b", "c", "d", "f", "e"]
    assert changes("#include <h.h>", rewrites("e/h.h"), include_path=path)
    assert changes("#include <h.h>", lambda: tree({"c/nowhere": ""}), include_path=path)
    assert changes("#include <h.h>", lambda: (os.unlink("b/h.h"), tree({"b/h.h": ""})), include_path=path)


def test_whether_there_is_a_file_is_all_that_has_include_asks(tree: Tree) -> None:
    tree({"a/x": "", "b/h.h": ""})
    code, path = "#if __has_include(<h.h>)\n#endif", ["a", "b"]
    assert not changes(code, rewrites("b/h.h"), include_path=path)
    assert changes(code, lambda: tree({"a/h.h": ""}), include_path=path)
    assert changes(code, lambda: (os.unlink("a/h.h"), os.unlink("b/h.h")), include_path=path)


def test_a_file_is_read_though_has_include_asked_for_it_before(tree: Tree) -> None:
    tree({"h.h": ""})
    assert changes('#if __has_include("h.h")\n#include "h.h"\n#endif', rewrites("h.h"))


# ---- what does not count ---------------------------------------------------------------------------------------------


def test_the_same_headers_at_another_place_agree(tree: Tree, tmp_path: Path) -> None:
    one = {"n.h": '#include "x/h.h"\n#include <x/h.h>\n#include <none.h>', "x/h.h": "int a;"}
    tree({f"{root}/{name}": content for root in ("one", "further/away") for name, content in one.items()})
    digests = {fingerprint("#include <n.h>", root) for root in ("one", "further/away", tmp_path / "one", "./one/.")}
    assert len(digests) == 1


def test_links_and_times_do_not_count(tree: Tree) -> None:
    tree({"cuda-13/h.h": '#include "i.h"', "cuda-13/i.h": "", "cuda": "->cuda-13", "other/h.h": "->../cuda-13/h.h"})
    tree({"other/i.h": ""})
    expected = fingerprint("#include <h.h>", "cuda-13")
    assert fingerprint("#include <h.h>", "cuda") == expected
    assert fingerprint("#include <h.h>", "other") == expected
    os.utime("cuda-13/h.h", (1, 1))
    assert fingerprint("#include <h.h>", "cuda-13") == expected


def test_what_the_code_says_beyond_its_includes_does_not_count(tree: Tree) -> None:
    tree({"h.h": ""})
    assert fingerprint('#include "h.h"\nint a;') == fingerprint('int b;\n#include "h.h"')


def test_two_names_of_one_file_are_told_from_two_copies(tree: Tree) -> None:
    """``#pragma once`` knows a file by its inode: a link is included once, a copy twice."""
    tree({"one/h.h": "#pragma once", "one/i.h": "->h.h", "two/h.h": "#pragma once", "two/i.h": "#pragma once"})
    code = "#include <h.h>\n#include <i.h>"
    assert fingerprint(code, "one") != fingerprint(code, "two")


# ---- computed names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "#include HEADER",
        "#define H(x) <x.h>\n#include H(deep)",
        "#if __has_include(HEADER)\n#endif",
        "#define HAS(x) __has_include(x)",
        "#define HAS __has_include\n#if HAS(<h.h>)\n#endif",
        "#define P(a, b) a##b\n#if P(__has_, include)(<h.h>)\n#endif",
    ],
)
def test_a_computed_name_may_be_any_file(tree: Tree, code: str, caplog: pytest.LogCaptureFixture) -> None:
    tree({"a/deep/er/h.h": "", "beside/h.h": ""})
    assert changes(code, rewrites("a/deep/er/h.h"), include_path="a")
    assert changes(code, rewrites("beside/h.h"), include_path="a")
    assert changes(code, lambda: tree({"a/deep/new": ""}), include_path="a")
    assert changes(code, lambda: os.unlink("a/deep/new"), include_path="a")
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2
    assert "every file below" in said[0].getMessage()


def test_what_computed_headers_include_is_followed(tree: Tree) -> None:
    tree({"a/one.h": '#include "../far/two.h"', "far/two.h": ""})
    assert changes("#include M", rewrites("far/two.h"), include_path="a", no_source_include=True)


def test_a_macro_that_leads_out_of_the_directories_is_followed(tree: Tree, tmp_path: Path) -> None:
    tree({"far/h.h": "", "a/x.h": f'#define M "{tmp_path}/far/h.h"', "sub/c.h": "#include M"})
    code = '#include <x.h>\n#include "c.h"'
    assert changes(code, rewrites("far/h.h"), include_path="a", name="sub/x.cu")


def test_a_macro_on_the_command_line_counts(tree: Tree, tmp_path: Path) -> None:
    tree({"far/h.h": "", "sub/x": ""})
    for macro in (f'M="{tmp_path}/far/h.h"', [("M", '"../far/h.h"')], ("M", '"../far/h.h"')):
        Path("far/h.h").write_text("")
        assert changes("#include M", rewrites("far/h.h"), define_macro=macro, name="sub/x.cu")
    asks = {"define_macro": [("YES", '__has_include("new.h")')]}
    assert changes("", lambda: tree({"new.h": ""}), **asks)


@pytest.mark.parametrize("macro", ["#define UP ..", "#define ROOT /usr", "#define H(x) </x>", "#define H /*\n*/ /usr"])
def test_a_name_that_may_be_composed_to_one_anywhere_is_refused(tree: Tree, macro: str) -> None:
    tree({"h.h": f"{macro}\n"})
    assert fingerprint('#include "h.h"')
    with pytest.raises(UncacheableError, match=r"includes a computed name.*h\.h.*outside"):
        fingerprint('#include "h.h"\n#include M')


def test_too_many_files_for_a_computed_name_are_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree({f"{i}.h": "" for i in range(5)})
    monkeypatch.setattr(computed, "_TREE_FILES_LIMIT", 5)
    assert fingerprint("#include M")
    tree({"6.h": ""})
    with pytest.raises(UncacheableError, match=r"#include M.*more than 5.*Name the header literally"):
        fingerprint("#include M")
    assert fingerprint("#include M", no_source_include=True)


def test_a_loop_of_links_ends_for_a_computed_name(tree: Tree) -> None:
    tree({"a/up": "->..", "a/h.h": ""})
    assert changes("#include M", rewrites("a/h.h"))


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["__TIME__", "__DATE__", "__TIMESTAMP__"])
def test_the_clock_in_a_header_is_refused(tree: Tree, word: str) -> None:
    tree({"a.h": '#include "b.h"', "b.h": f"const char *when = {word};"})
    with pytest.raises(UncacheableError, match=rf"b\.h has {word}"):
        fingerprint('#include "a.h"')
    with pytest.raises(UncacheableError, match=f"x.cu has {word}"):
        fingerprint(word, name="x.cu")
    with pytest.raises(UncacheableError, match=word):
        fingerprint("", define_macro=("NOW", word))


def test_a_header_that_cannot_be_read_is_named(tree: Tree) -> None:
    # A regular file, by its status, that fails to be read: also for root, whom permissions do not stop.
    tree({"h.h": "->/proc/self/mem"})
    with pytest.raises(OSError, match=r"cannot read a header.*h\.h") as caught:
        fingerprint('#include "h.h"')
    assert str(caught.value.filename).endswith("/h.h")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_header_without_read_permission_is_a_permission_error(tree: Tree) -> None:
    tree({"h.h": ""})
    os.chmod("h.h", 0)
    with pytest.raises(PermissionError, match=r"h\.h"):
        fingerprint('#include "h.h"')


@pytest.mark.parametrize("wrong", [5, b"a", {"a"}, {"a": 1}, ["a", 5], [b"a"], [["a"]], object])
def test_a_path_of_a_wrong_type_is_named(wrong: Any) -> None:
    for argument in ("include_path", "pre_include"):
        with pytest.raises(TypeError, match=f"{argument} must be a str, an os.PathLike"):
            fingerprint("", **{argument: wrong})


def test_other_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match="code must be a str, bytes or bytearray, got int"):
        fingerprint(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a str or None, got PosixPath"):
        fingerprint("", name=Path("x"))  # type: ignore[arg-type]
    for macro in (5, [5], ("A", 5), b"A", {"A": "1"}):
        with pytest.raises(TypeError, match="define_macro must be"):
            fingerprint("", define_macro=macro)  # type: ignore[arg-type]


def test_paths_may_be_given_in_every_accepted_form(tree: Tree, tmp_path: Path) -> None:
    tree({"a/h.h": "", "p.h": ""})
    forms: list[Any] = ["a", Path("a"), ["a"], (Path("a"),), tmp_path / "a"]
    assert len({fingerprint("#include <h.h>", form, "p.h") for form in forms}) == 1
    assert fingerprint("", None, None, define_macro=None) == fingerprint(b"") == fingerprint(bytearray())


def test_nothing_of_cuda_is_imported() -> None:
    script = "import sys, lockcache.headers; print([m for m in sys.modules if m.partition('.')[0] == 'cuda'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- the memo --------------------------------------------------------------------------------------------------------


class Calls:
    """Counts what reaches the file system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = dict.fromkeys(("stat", "open", "access", "listdir"), 0)
        for name in self.count:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count[name] += 1
            return real(*arguments, **named)

        return call

    def of(self, work: Callable[[], object]) -> dict[str, int]:
        for name in self.count:
            self.count[name] = 0
        work()
        return dict(self.count)


def wide(tree: Tree, count: int) -> str:
    """A source of ``count`` headers, each in the last of four directories."""
    tree({f"d/x/{i}.h": f"int a{i};\n#include <x/{i + 1}.h>" for i in range(count)})
    for name in "abc":
        os.mkdir(name)
    return "#include <x/0.h>"


def test_a_warm_call_opens_nothing_and_looks_at_each_file_once(
    tree: Tree, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, path = wide(tree, 300), ["a", "b", "c", "d"]
    fingerprint(code, path)
    calls = Calls(monkeypatch).of(lambda: fingerprint(code, path))
    # 300 files and 5 directories; a/x, b/x and c/x stand for 900 misses, d/x/300.h is one of its own.
    assert calls == {"stat": 305, "open": 0, "access": 4, "listdir": 0}


def test_a_second_source_with_the_same_headers_reads_none_of_them(
    tree: Tree, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, path = wide(tree, 20), ["d"]
    fingerprint(code, path)
    read = Calls(monkeypatch)
    assert read.of(lambda: fingerprint(code + "\nint other;", path))["open"] == 0
    scans: list[bytes] = []
    monkeypatch.setattr(files, "scan", lambda data: scans.append(data) or source.scan(data))
    fingerprint(code + '\n#include "none.h"', path)
    assert not scans


def test_a_young_file_is_read_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree({"h.h": ""})
    fingerprint('#include "h.h"')
    assert Calls(monkeypatch).of(lambda: fingerprint('#include "h.h"'))["open"] == 1


def test_a_change_that_leaves_size_and_mtime_alone_is_seen(tree: Tree, settled: None) -> None:
    tree({"h.h": "one"})
    os.utime("h.h", ns=(10**18, 10**18))

    def change() -> None:
        Path("h.h").write_text("two")
        os.utime("h.h", ns=(10**18, 10**18))

    assert changes('#include "h.h"', change)


def test_a_link_turned_to_another_directory_is_seen(tree: Tree, settled: None) -> None:
    """Also where the file itself is the same inode: what lies beside it is not."""
    tree({"one/h.h": '#include "i.h"', "one/i.h": "1", "two/i.h": "2", "cuda": "->one"})
    os.link("one/h.h", "two/h.h")

    def turn() -> None:
        os.unlink("cuda")
        os.symlink("two", "cuda")

    assert changes("#include <h.h>", turn, include_path="cuda")


def test_the_working_directory_counts_for_what_is_remembered(tree: Tree, settled: None, tmp_path: Path) -> None:
    tree({"one/h.h": "1", "two/h.h": "2"})
    os.chdir("one")
    before = fingerprint('#include "h.h"')
    os.chdir(tmp_path / "two")
    assert fingerprint('#include "h.h"') != before


def test_a_removed_working_directory_is_no_error(tree: Tree, tmp_path: Path) -> None:
    tree({"gone/x": "", "a/h.h": ""})
    os.chdir("gone")
    os.unlink("x")
    os.rmdir(tmp_path / "gone")
    code, path = '#include "h.h"', tmp_path / "a"
    assert changes(code, lambda: (tmp_path / "a/h.h").write_text("// another one"), include_path=path)


@pytest.mark.parametrize(
    "mtime_seconds, ctime_seconds, expected",
    [
        (98, 98, True),
        (200, 98, True),  # out of an archive that has the future in it
        (0, 99, False),
        (0, 101, False),  # a server's clock, ahead of ours
        (99, 0, False),  # a file system without ctime
    ],
)
def test_a_file_is_settled_two_seconds_after_its_last_change(
    mtime_seconds: int, ctime_seconds: int, expected: bool
) -> None:
    found = (1, 1, 1, mtime_seconds * 10**9, ctime_seconds * 10**9)
    assert files._is_settled(found, 1005 * 10**8) is expected


def test_what_is_remembered_is_bounded(tree: Tree, settled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "_FACTS_LIMIT", 50)
    monkeypatch.setattr(files, "_CONTENTS_LIMIT", 10)
    tree({f"{i}.h": "" for i in range(100)})
    for i in range(100):
        fingerprint(f'#include "{i}.h"')
        assert memo._closures._facts <= 50
        assert len(files._contents._known) <= 10
    held = sum(closure.facts.weight for closure in memo._closures._known.values())
    assert memo._closures._facts == held > 0


def test_threads_agree(tree: Tree, settled: None) -> None:
    code, found = wide(tree, 50), []
    threads = [threading.Thread(target=lambda: found.append(fingerprint(code, ["d"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {fingerprint(code, ["d"])}
    assert len(found) == 8


def test_a_fork_while_a_thread_holds_the_lock_leaves_the_child_a_free_one(tree: Tree, settled: None) -> None:
    code = wide(tree, 5)
    expected = fingerprint(code, ["d"])
    with memo._closures._lock, files._contents._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if fingerprint(code, ["d"]) == expected and fingerprint("", ["d"]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_header_deleted_while_it_is_looked_for_is_looked_for_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree({"a/h.h": "", "b/h.h": ""})
    load = files.load

    def delete_first(path: bytes) -> Any:
        if os.path.exists("a/h.h"):
            os.unlink("a/h.h")
        return load(path)

    monkeypatch.setattr(files, "load", delete_first)
    assert fingerprint("#include <h.h>", ["a", "b"]) == fingerprint("#include <h.h>", ["a", "b"])
