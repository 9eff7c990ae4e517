# SPDX-License-Identifier: Apache-2.0
"""The package's links, which depend on where the repository is: a release tells by ``LOCKCACHE_REPOSITORY_URL``.

The README links to files next to it, which an index does not have. With the variable (see
``.github/workflows/release.yml``) these links lead to the repository, at the version's tag, and the metadata names it.
Without it nothing is invented: the README stays as it is, and the metadata has no links.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")


class RepositoryLinks(MetadataHookInterface):
    """Fills in the fields that ``pyproject.toml`` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README and the links."""
        text = Path(self.root, "README.md").read_text()
        address = os.environ.get("LOCKCACHE_REPOSITORY_URL", "").rstrip("/")
        metadata["urls"] = {}
        if address:
            tag = f"v{metadata['version']}"
            text = with_absolute_links(text, address, tag)
            metadata["urls"] = {
                "Source": address,
                "Documentation": f"{address}/blob/{tag}/docs/index.md",
                "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{address}/issues",
                "Security": f"{address}/blob/{tag}/SECURITY.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_absolute_links(text: str, address: str, tag: str) -> str:
    """Returns a page with its links to files, pictures too, leading to the repository."""

    def absolute(link: re.Match[str]) -> str:
        mark, words, target = link.groups()
        return f"{mark}[{words}]({address}/{'raw' if mark else 'blob'}/{tag}/{target})"

    return _LINK.sub(absolute, text)
