# SPDX-License-Identifier: Apache-2.0
"""One process of the row ``inductor-shared``: compiles a small GPT with ``torch.compile``, and trains it for two steps.

Run as a program, with the device's name: ``python -m ...inductor_program cuda``. Waits for a line on standard input
once torch is imported, so that the processes of a row begin together, and prints one JSON object: the seconds of the
first step, the losses, and what Inductor and AOTAutograd found in caches. Imports torch, and neither lockcache nor the
rest of the suite: under ``lockcache run`` it is a program like any other.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

_SIZES: Final = {
    # Width, heads, layers, words, positions and batch. Without a GPU the C++ compiler takes most of a minute a layer.
    "cuda": (256, 4, 3, 1024, 128, 4),
    "cpu": (16, 2, 1, 32, 8, 2),
}
_STEPS: Final = 2


def main(device: str) -> None:
    """Compile and train, and print the figures."""
    import torch
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    width, heads, layers, words, positions, batch = _SIZES[device]
    model = _make_gpt(torch, width, heads, layers, words, positions).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model)
    source = torch.randint(0, words, (batch, positions), generator=torch.Generator().manual_seed(1)).to(device)
    target = source.roll(-1, 1)
    print("ready", flush=True)
    sys.stdin.readline()
    began, first, losses = time.perf_counter(), 0.0, []
    for step in range(_STEPS):
        optimizer.zero_grad()
        loss = compiled(source, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 0:
            first = time.perf_counter() - began
    found = {**counters["inductor"], **counters["aot_autograd"]}
    cache = {name: count for name, count in found.items() if "cache" in name}
    print(json.dumps({"first_step_seconds": first, "losses": losses, "counters": cache}))


def _make_gpt(torch: Any, width: int, heads: int, layers: int, words: int, positions: int) -> Any:
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            size, length, _ = x.shape
            parts = self.inputs(self.before(x)).chunk(3, -1)
            query, key, value = (part.view(size, length, heads, width // heads).transpose(1, 2) for part in parts)
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.output(seen.transpose(1, 2).reshape(size, length, width))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, source: Any, target: Any) -> Any:
            x = self.words(source) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return functional.cross_entropy(self.head(self.last(x)).flatten(0, 1), target.flatten())

    return Gpt()


if __name__ == "__main__":
    main(sys.argv[1])
