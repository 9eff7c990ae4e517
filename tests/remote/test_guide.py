# SPDX-License-Identifier: Apache-2.0
"""The guide's manifests are valid, and the server in them starts with the words that stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import PROJECT, blocks
from tests.remote.servers import valkey

PAGE = PROJECT / "docs/guides/remote.md"


def _documents(name: str) -> list[Any]:
    [found] = [block.text for block in blocks(PAGE) if block.text.startswith(f"# {name}")]
    return list(yaml.safe_load_all(found))


def test_the_manifests_are_valid() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for document in _documents("kernels.yaml"):
        validate.validate(document, validate.latest_version(), strict=True)


def test_the_server_starts_with_the_words_of_compose_file_and_manifest(tmp_path: Path) -> None:
    [compose] = _documents("compose.yaml")
    deployment, service = _documents("kernels.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    program, *words = compose["services"]["kernels"]["command"]
    assert container["args"] == [program, *words]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    with valkey(tmp_path, *words) as server:
        assert "allkeys-lru" in str(server.client.config_get("maxmemory-policy"))
