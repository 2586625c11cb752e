"""Which tuned kernels the network as a whole is faster with, and by how much."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .console import Steps, show
from .models import random_inputs
from .replay import time_in_turn

# A record stays in the log of the best unless the network is faster without it by this share.
_MARGIN = 0.01
# How often as many rounds again are asked until they agree.
_MOST_TURNS = 4


@dataclass(frozen=True)
class Gain:
    """The records that are kept, and what they bring."""

    kept: list[str]  # lines in the log of the best
    dropped: int  # records that beat what they replace alone and slowed the network
    # milliseconds, milliseconds_without: of the network, in turn, under the log of the best and
    # without; empty on other machines
    milliseconds: list[float]
    milliseconds_without: list[float]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "dropped": self.dropped,
            "milliseconds": self.milliseconds,
            "milliseconds_without": self.milliseconds_without,
        }


def prune(
    library: Callable[[Sequence[str]], Any], lines: list[str], rounds: int, steps: Steps
) -> tuple[list[str], list[float], list[float]]:
    """Drop records without which the network is faster, one by one; both latencies at the end.

    A record sets layouts, which its neighbors may have to convert to and from; only the network
    shows that.

    `library`: writes the log of the best with some of the lines, and builds the network under it;
    under no log without lines.
    """
    without = library(())
    inputs = random_inputs(without.metadata.inputs)
    kept = list(lines)
    current = library(kept) if kept else without
    for line in lines:
        rest = [each for each in kept if each != line]
        shorter = library(rest) if rest else without
        if network_gain(shorter, current, inputs, rounds) > _MARGIN:
            kept, current = rest, shorter
    if kept and network_gain(current, without, inputs, rounds) <= 0:
        steps.note("the network is not faster with any set of records; none is kept")
        kept, current = [], without
    library(kept)
    if current is without:  # the same library would seem to differ
        (times,), _ = time_in_turn([without], inputs, rounds)
        return kept, times, times
    (times, base), _ = time_in_turn([current, without], inputs, rounds)
    return kept, times, base


def network_gain(one: Any, other: Any, inputs: Mapping[str, Any], rounds: int) -> float:
    """How much faster the first library is than the second, as a share of the second's time.

    The median over rounds in which both are timed in turn. It is 0 if three quarters of the rounds
    do not agree which is faster, however often they are asked: other work on the machine must not
    decide.
    """
    gains: list[float] = []
    for _ in range(_MOST_TURNS):
        (first, second), _ = time_in_turn([one, other], inputs, rounds)
        gains = sorted([*gains, *(1 - a / b for a, b in zip(first, second))])
        quarter = len(gains) // 4
        if gains[quarter] > 0 or gains[-1 - quarter] < 0:
            return statistics.median(gains)
    return 0.0


def show_network(found: Gain, best: Path, bar: str) -> None:
    """Print how many records in `best` beat `bar`, and the latency with and without them."""
    from compiler.autotvm.confirm import undisturbed

    show(f"{len(found.kept)} records beat {bar}: {best}")
    if found.dropped:
        show(f"{found.dropped} more beat it alone and slow the network; they are left out")
    if found.milliseconds:
        after, before = undisturbed(found.milliseconds), undisturbed(found.milliseconds_without)
        show(f"the network takes {after:.3f} ms, {before:.3f} ms before ({before / after:.2f}x)")
