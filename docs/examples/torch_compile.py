# SPDX-License-Identifier: Apache-2.0
"""torch.compile: a small model. Under ``lockcache run`` its graphs are compiled once for all processes and nodes."""

from __future__ import annotations

import time

import torch


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to(device)
    began = time.monotonic()
    result = torch.compile(model)(torch.ones(4, 64, device=device))
    print(f"first step on {device} after {time.monotonic() - began:.1f} s, sum {result.sum().item():.4f}")


if __name__ == "__main__":
    main()
