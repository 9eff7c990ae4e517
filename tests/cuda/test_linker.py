# SPDX-License-Identifier: Apache-2.0
"""lockcache.cuda.Linker: cuda.core's Linker, cached. Everything here is linked by the real nvJitLink."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cuda

cuda_core = pytest.importorskip("cuda.core")

from cuda.core import LinkerOptions, ObjectCode  # noqa: E402

from lockcache import FileStreamProgramCache, InMemoryProgramCache  # noqa: E402
from lockcache.arguments import warn_once  # noqa: E402
from lockcache.cuda import Linker, linker as linker_module  # noqa: E402
from lockcache.resource import ProgramCacheResource  # noqa: E402
from tests.cli.command import run  # noqa: E402
from tests.cuda.objects import (  # noqa: E402
    APART,
    CHANGED_HELPER,
    HELPER,
    KERNEL,
    LTO,
    LTO_PTX,
    link_really,
    linker_options,
    unit,
    units,
)

CORE = cuda_core.Linker

#: Kind of the objects, target, options.
WAYS = [("ltoir", "cubin", LTO), ("ltoir", "ptx", LTO_PTX), ("ptx", "cubin", {}), ("cubin", "cubin", {})]


class NoLinker:
    """Stands in for the constructor of cuda.core's linker, and fails the test that runs it."""

    def __init__(self, *arguments: object, **options: object) -> None:
        raise AssertionError("a hit made a linker")


def link(objects: list[ObjectCode], target: str, cache: object, **more: Any) -> tuple[ObjectCode, Linker]:
    linker = Linker(*objects, options=linker_options(**more))
    return linker.link(target, cache=cache), linker


def outcome(call: Any) -> str:
    try:
        return repr(call())
    except Exception as error:  # noqa: BLE001 - what cuda.core raises is what is compared
        return f"{type(error).__name__}: {error}"


# ---- a drop-in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, target, more", WAYS, ids=str)
def test_it_is_a_cuda_core_linker_and_links_as_one_without_a_cache(kind: str, target: str, more: dict) -> None:
    code, info, errors = link_really(units(kind), target, **more)
    linked, linker = link(units(kind), target, None, name="mine", **more)
    assert isinstance(linker, cuda_core.Linker)
    assert (linked.code, linked.code_type, linked.name, linked.symbol_mapping) == (code, target, "mine", {})
    assert (linker.get_info_log(), linker.get_error_log()) == (info, errors)
    assert int(linker.handle)
    assert not linker.is_closed
    linker.close()
    assert (linker.is_closed, linker.get_info_log()) == (True, info)


@pytest.mark.parametrize(
    "arguments, options",
    [
        ((), linker_options()),
        ((5,), linker_options()),
        ((b"x",), linker_options()),
        ((5,), 5),
        ((), {"no such option": 1}),
        ("units", 5),
        ("units", "sm_90"),
        ("units", [("arch", "sm_90")]),
        ("units", {"no such option": 1}),
        ("units", {1: 2}),
        ("units", None),
        ("units", {}),
        ("units", LinkerOptions()),
        ("missing file", linker_options()),
    ],
    ids=str,
)
def test_arguments_that_cuda_core_refuses_are_refused_with_its_error(arguments: Any, options: object) -> None:
    given = {"units": units("ptx"), "missing file": [ObjectCode.from_ptx("/none/x.ptx")]}.get(str(arguments), arguments)
    # Without a driver there is no default architecture.
    ours, theirs = (outcome(lambda kind=kind: bool(kind(*given, options=options))) for kind in (Linker, CORE))
    assert ours == theirs


def test_what_nvjitlink_refuses_is_raised_by_link_in_its_words(cache) -> None:
    broken = [ObjectCode.from_ptx(b"not PTX")]
    said = outcome(lambda: CORE(*broken, options=linker_options()))
    assert said.startswith("nvJitLinkError")
    linker = Linker(*broken, options=linker_options())
    assert outcome(lambda: linker.link("cubin", cache=cache)) == outcome(lambda: linker.link("cubin")) == said
    assert len(cache) == 0


@pytest.mark.parametrize("target", ["ltoir", "CUBIN", None, 5, []], ids=str)
def test_other_targets_are_refused_by_cuda_core(target: Any, cache) -> None:
    said = outcome(lambda: CORE(*units("ptx"), options=linker_options()).link(target))
    assert outcome(lambda: link(units("ptx"), target, cache)) == said


def test_a_closed_linker_says_so(cache) -> None:
    for use in (
        lambda linker: linker.link("cubin"),
        lambda linker: linker.link("cubin", cache=cache),
        lambda linker: linker.get_info_log(),
        lambda linker: linker.get_error_log(),
    ):
        linker = Linker(*units("ptx"), options=linker_options())
        linker.close()
        with pytest.raises(RuntimeError, match="closed"):
            use(linker)


def test_the_log_of_a_link_that_fails_is_read_as_with_cuda_core(cache) -> None:
    linker, core = (kind(*units("ptx", KERNEL), options=linker_options()) for kind in (Linker, CORE))
    assert outcome(lambda: linker.link("cubin", cache=cache)) == outcome(lambda: core.link("cubin"))
    assert "Undefined reference" in linker.get_error_log()
    assert linker.get_error_log() == core.get_error_log()


def test_the_arguments_are_those_of_the_constructors_time(tmp_path: Path, cache) -> None:
    code = link_really(units("ptx"), "cubin")[0]
    path = tmp_path / "helper.ptx"
    path.write_bytes(unit(HELPER, "ptx").code)
    given = linker_options()
    linker = Linker(unit(KERNEL, "ptx"), ObjectCode.from_ptx(path), options=given)
    path.write_bytes(unit(CHANGED_HELPER, "ptx").code)
    given.debug = True
    assert linker.link("cubin", cache=cache).code == code
    assert link(units("ptx"), "cubin", cache)[0].code == code
    assert cache.stats().hits == 1, "a file has the key of its content"


# ---- hits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [InMemoryProgramCache, None], ids=["memory", "filestream"])
@pytest.mark.parametrize("kind, target, more", WAYS, ids=str)
def test_a_hit_is_what_the_link_made_and_wrote_and_makes_no_linker(
    kind: str, target: str, more: dict, make: Any, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make() if make else FileStreamProgramCache(cache_path)
    more = {**more, "time": True, "verbose": True}
    first, linked = link(units(kind), target, cache, **more)
    written = linked.get_info_log(), linked.get_error_log()
    assert "time" in written[0]
    monkeypatch.setattr(Linker, "_make", NoLinker)
    again, hit = link(units(kind), target, cache, name="other", **more)
    assert (again.code, again.code_type, again.name) == (first.code, target, "other")
    assert (hit.get_info_log(), hit.get_error_log()) == written
    assert (cache.stats().hits, cache.stats().puts) == (1, 1)


def test_one_linker_links_again_with_its_cache_and_has_the_log_of_the_last_link(cache) -> None:
    linker = Linker(*units("ltoir"), options=linker_options(**LTO))
    first = linker.link("cubin", cache=cache)
    assert linker.link("cubin", cache=cache).code == first.code
    hit = Linker(*units("ltoir"), options=linker_options(**LTO))
    assert hit.get_info_log() == ""
    assert hit.link("cubin", cache=cache).code == hit.link("cubin").code == first.code
    assert hit.get_info_log() == linker.get_info_log() != ""


def test_a_hit_whose_entry_lost_its_log_has_it_all_the_same(cache, cache_path: Path) -> None:
    first, linked = link(units("ltoir"), "cubin", cache, **LTO)
    copied = f"{cache_path}-copied"
    subprocess.run(["cp", "-r", cache_path, copied], check=True)  # loses extended attributes
    with FileStreamProgramCache(copied) as copy:
        again, hit = link(units("ltoir"), "cubin", copy, **LTO)
        assert (copy.stats().hits, copy.stats().puts) == (1, 0)
    hit.close()
    assert again.code == first.code
    assert hit.get_info_log() == linked.get_info_log() != ""


@pytest.mark.parametrize("logs", [None, "text", ("one",), ("a", 5), ["a", "b"]], ids=repr)
def test_a_log_that_no_linker_wrote_is_not_believed(logs: object) -> None:
    from lockcache.resource import Entry

    cache = InMemoryProgramCache()
    first, linked = link(units("ltoir"), "cubin", cache, **LTO)
    key = Linker(*units("ltoir"), options=linker_options(**LTO))._inputs.key("cubin", cache)
    cache.put_entry(key, Entry(first.code, {"linker_logs": logs}))
    _, hit = link(units("ltoir"), "cubin", cache, **LTO)
    assert hit.get_info_log() == linked.get_info_log()


class PlainCache(ProgramCacheResource):
    """A third party's back end, which keeps no metadata."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}

    def __getitem__(self, key: Any) -> bytes:
        return self.stored[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.stored[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.stored[key]

    def __len__(self) -> int:
        return len(self.stored)

    def clear(self) -> None:
        self.stored.clear()


def test_a_back_end_without_metadata_serves_links(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PlainCache()
    first, _ = link(units("ptx"), "cubin", cache)
    monkeypatch.setattr(Linker, "_make", NoLinker)
    assert link(units("ptx"), "cubin", cache)[0].code == first.code


def test_a_very_long_log_is_not_stored_and_read_all_the_same(cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker_module, "_MOST_LOG_CHARACTERS", 10)
    _, linked = link(units("ltoir"), "cubin", cache, **LTO)
    _, hit = link(units("ltoir"), "cubin", cache, **LTO)
    assert cache.stats().hits == 1
    assert hit.get_info_log() == linked.get_info_log()
    assert len(hit.get_info_log()) > 10


def test_an_entry_is_listed_by_the_name_of_the_linker_else_by_its_kernels(cache, cache_path: Path) -> None:
    link(units("ptx"), "cubin", cache)
    link(units("ltoir", APART), "ptx", cache, **LTO_PTX)
    link(units("ptx", APART), "cubin", cache, name="solver")
    labels = [json.loads(line)["label"] for line in run("ls", "--json", cache_path).stdout.splitlines()]
    assert sorted(labels) == ["apart", "other, k", "solver"]


# ---- what is not cached ----------------------------------------------------------------------------------------------


def test_ptxas_options_that_name_a_file_are_linked_and_not_cached_with_one_warning(
    tmp_path: Path, cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warn_once.cache_clear()
    options = tmp_path / "options"
    outputs = []
    for level in ("-O0", "-O3"):
        options.write_text(level)
        outputs.append(link(units("ptx"), "cubin", cache, ptxas_options=[f"--options-file={options}"])[0].code)
    assert outputs[0] != outputs[1], "ptxas reads the file"
    assert (len(cache), len(caplog.records)) == (0, 1)
    assert "options-file" in caplog.text
    assert "extra_digest" not in caplog.text, "which a linker does not take"


def test_a_result_without_code_is_returned_and_not_stored(
    cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvJitLink gave no empty output in any of our tries: a stand-in."""
    warn_once.cache_clear()
    monkeypatch.setattr(Linker, "_link", lambda self, target: ObjectCode.from_cubin(b""))
    for _ in range(2):
        assert link(units("ptx"), "cubin", cache)[0].code == b""
    assert (len(cache), len(caplog.records)) == (0, 1)


def test_what_the_driver_links_is_not_cached(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a host without nvJitLink: the backend that cuda.core names."""
    warn_once.cache_clear()
    monkeypatch.setattr(linker_module, "_is_linked_by_nvjitlink", lambda: False)
    cache = InMemoryProgramCache()
    for _ in range(2):
        linked, linker = link(units("ptx"), "cubin", cache)
        assert linked.code == link_really(units("ptx"), "cubin")[0]
        assert linker.get_info_log() == ""
    assert (len(cache), len(caplog.records)) == (0, 1)
    assert "nvidia-nvjitlink" in caplog.text


@pytest.mark.parametrize("other", [{}, 5, "path"], ids=repr)
def test_a_cache_of_another_type_is_a_type_error(other: object) -> None:
    with pytest.raises(TypeError, match="cache must be one of lockcache's"):
        link(units("ptx"), "cubin", other)


# ---- processes -------------------------------------------------------------------------------------------------------
