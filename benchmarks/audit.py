"""What watching a training costs: steps of a transformer with ten million parameters, with and without.

Steps are taken in turns, plain and watched, so that what else the machine does falls on both. Watching every
tenth step must cost at most 1.3 times the plain step, the steps in between at most 1.05 times.
"""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from time import perf_counter

import torch
from torch import Tensor, nn

from amp_lessons import audit, devices
from benchmarks import promise

WIDTH, LAYERS, TOKENS, BATCH, WORDS = 384, 6, 128, 8, 256
EVERY, ROUNDS = 10, 4
ON_AVERAGE, BETWEEN = 1.3, 1.05


class Transformer(nn.Module):
    """A causal language model of PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, tokens) to (batch, tokens, words)."""
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], words.device)
        return self.head(self.layers(self.words(words), mask, is_causal=True))


def main() -> None:
    """Print the median step, plain and watched, sampled and between, and whether the promises are kept."""
    torch.manual_seed(0)
    device = devices.default_device()
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, WORDS, (BATCH, TOKENS + 1), device=device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    where = devices.describe().name
    print(f"transformer with {parameters / 1e6:.1f} million parameters, AMP in bf16 on {where}")
    step_ms(model, optimizer, words)
    plain, watched = measure(model, optimizer, words)
    report(plain, watched)


def measure(
    model: nn.Module, optimizer: torch.optim.Optimizer, words: Tensor
) -> tuple[list[float], list[list[float]]]:
    """Time plain steps, and watched ones by their place after the sampled one, in ms; in turns."""
    plain: list[float] = []
    watched: list[list[float]] = [[] for _ in range(EVERY)]
    for _ in range(ROUNDS):
        for seen in (False, True):
            with ExitStack() as stack:
                if seen:
                    stack.enter_context(audit.watch(model, every=EVERY))
                for place in range(EVERY):
                    took = step_ms(model, optimizer, words)
                    (watched[place] if seen else plain).append(took)
    return plain, watched


def step_ms(model: nn.Module, optimizer: torch.optim.Optimizer, words: Tensor) -> float:
    """Take one training step, and return how long it took in ms."""
    start = perf_counter()
    optimizer.zero_grad()
    with torch.autocast(words.device.type, dtype=torch.bfloat16):
        logits = model(words[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    torch.get_device_module(words.device).synchronize()
    return (perf_counter() - start) * 1e3


def report(plain: list[float], watched: list[list[float]]) -> None:
    """Print the medians and what was promised."""
    base = statistics.median(plain)
    sampled = statistics.median(watched[0])
    between = statistics.median(each for place in watched[1:] for each in place)
    average = (sampled + (EVERY - 1) * between) / EVERY
    print(f"plain {base:.0f} ms, sampled {sampled:.0f} ms, between {between:.0f} ms")
    print(f"watching every {EVERY}th step, {promise(ON_AVERAGE, average / base, 'times the plain step')}")
    print(f"between sampled steps, {promise(BETWEEN, between / base, 'times the plain step')}")


if __name__ == "__main__":
    main()
