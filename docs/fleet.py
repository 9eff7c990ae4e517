"""The tables of the page about fleets: reads from stdin what ``lockcache-stress fleet --markdown`` prints.

``make fleet`` runs both, and the picture.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parent / "guides" / "fleet.md"
_BLOCK: Final = re.compile(r"(<!-- fleet -->\n).*?(<!-- end of fleet -->)", re.DOTALL)


def main() -> None:
    """Fill the page."""
    tables = sys.stdin.read()
    if not tables:
        sys.exit("stdin is empty: lockcache-stress fleet --markdown prints what is wanted")
    page = _PAGE.read_text()
    _PAGE.write_text(_BLOCK.sub(lambda found: found[1] + tables + found[2], page))


if __name__ == "__main__":
    main()
