# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.filestream.seeds import bundle, seeded

__all__ = ["bundle", "seeded"]
