# SPDX-License-Identifier: Apache-2.0
"""Tables of simulations in the documents: reads from stdin what lockcache-stress prints with ``--markdown``.

``make fleet`` and ``make eviction`` run both, and the pictures. Arguments: a page below docs, and the name of a block.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(page_name: str = "guides/fleet.md", block: str = "fleet") -> None:
    """Fill a block of a page."""
    page_path = Path(__file__).parent / page_name
    tables = sys.stdin.read()
    if not tables:
        sys.exit(f"stdin is empty: what lockcache-stress prints with --markdown for {block} is wanted")
    found = re.compile(rf"(<!-- {block} -->\n).*?(<!-- end of {block} -->)", re.DOTALL)
    page_path.write_text(found.sub(lambda match: match[1] + tables + match[2], page_path.read_text()))


if __name__ == "__main__":
    main(*sys.argv[1:])
