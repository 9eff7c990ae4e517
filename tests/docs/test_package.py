# SPDX-License-Identifier: Apache-2.0
"""The package as an index shows it: links that lead somewhere, and no address that nobody stated."""

from __future__ import annotations

import re
import sys

import pytest

from lockcache import __version__
from tests.docs.pages import PROJECT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")


def metadata(monkeypatch: pytest.MonkeyPatch, address: str | None) -> dict[str, object]:
    """Returns what a build writes, by the hook alone."""
    build = pytest.importorskip("hatchling.metadata.core", reason="needs hatchling")
    plugins = pytest.importorskip("hatchling.plugin.manager")
    if address is None:
        monkeypatch.delenv("LOCKCACHE_REPOSITORY_URL", raising=False)
    else:
        monkeypatch.setenv("LOCKCACHE_REPOSITORY_URL", address)
    found = build.ProjectMetadata(str(PROJECT), plugins.PluginManager()).core
    return {"urls": found.urls, "readme": found.readme}


def test_a_release_links_to_its_repository_at_its_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metadata(monkeypatch, "https://example.org/them/lockcache/")
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(made["urls"])  # type: ignore[call-overload]
    links = _LINK.findall(str(made["readme"]))
    assert links
    assert all(link.startswith("https://") for link in links)
    assert f"https://example.org/them/lockcache/blob/v{__version__}/docs/quickstart.md" in links
    assert f"https://example.org/them/lockcache/raw/v{__version__}/docs/_static/demo.svg" in links


def test_a_build_elsewhere_names_no_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metadata(monkeypatch, None)
    assert made["urls"] == {}
    assert "https://" not in str(made["readme"])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_what_a_page_at_the_top_links_to_is_there(page: str) -> None:
    linked = {link.partition("#")[0] for link in _LINK.findall((PROJECT / page).read_text()) if "://" not in link}
    assert [link for link in sorted(linked) if link and not (PROJECT / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((PROJECT / "README.md").read_text().split()) < 600


def test_what_a_newcomer_reads_of_the_project_fits_a_few_screens() -> None:
    assert len((PROJECT / "pyproject.toml").read_text().splitlines()) < 150
    assert len((PROJECT / "CONTRIBUTING.md").read_text().splitlines()) < 150


def test_the_daemons_extra_brings_neither_compilers_nor_what_draws() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["daemon"] == ["lockcache[metrics]"]
    assert [name.partition(">")[0] for name in extras["metrics"]] == ["prometheus-client"]


def test_the_side_bar_of_the_documents_can_be_overlooked() -> None:
    trees = re.findall(
        r"^```{toctree}\n(.*?)^```", (PROJECT / "docs" / "index.md").read_text(), re.MULTILINE | re.DOTALL
    )
    pages = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert 20 <= len(pages) <= 25
