"""Counts of what a kernel asks of memory and of the issue slots, warp by warp."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

WARP = 32
SECTOR = 32  # bytes that global memory moves at least
BANK = 4  # bytes of a bank of shared memory
WAVE = 128  # bytes that shared memory moves at most at a time


@dataclass
class Traffic:
    """Accesses of a launch, counted per warp.

    Attributes
    ----------
    requests : int
        Global loads and stores that a warp issued.
    sectors : int
        Different 32-byte sectors of each request, added up. The least is bytes / 32.
    block_sectors : int
        Different sectors that each block reads or writes, added up: what a cache for each block
        would ask the level-2 cache for.
    shared_requests : int
        Loads and stores of shared memory that a warp issued.
    shared_waves : int
        Passes that these take: one per 128 bytes, and more where threads meet in a bank.
    instructions : int
        All instructions that a warp issued, in whichever of its threads.
    """

    requests: int = 0
    sectors: int = 0
    block_sectors: int = 0
    shared_requests: int = 0
    shared_waves: int = 0
    instructions: int = 0
    _touched: list[np.ndarray] = field(default_factory=list, repr=False)

    def __iadd__(self, other: Traffic) -> Traffic:
        for name, count in vars(other).items():
            if not name.startswith("_"):
                setattr(self, name, getattr(self, name) + count)
        return self

    def note_global(
        self, at: np.ndarray, width: int, lanes: np.ndarray, blocks: np.ndarray
    ) -> None:
        """Count an access of `width` bytes (at most 32, aligned) per thread of these blocks."""
        warps = lanes // WARP
        self.requests += len(np.unique(warps))
        sectors = at // SECTOR
        self.sectors += len(np.unique(warps << 40 | sectors))
        self._touched.append(np.unique(blocks << 40 | sectors))

    def end_blocks(self) -> None:
        """The blocks that ran have ended: add their sectors up."""
        if self._touched:
            self.block_sectors += len(np.unique(np.concatenate(self._touched)))
            self._touched.clear()

    def note_shared(self, at: np.ndarray, width: int, lanes: np.ndarray) -> None:
        """Count an access of `width` bytes per thread; wide ones go part of a warp by part."""
        self.shared_requests += len(np.unique(lanes // WARP))
        together = min(WARP, WAVE // max(width, BANK))
        words = at[:, None] // BANK + np.arange(max(1, width // BANK))
        parts = np.broadcast_to((lanes // together)[:, None], words.shape)
        # A word that several threads read is one; different words of a bank are passes.
        different = np.unique(np.stack([parts.ravel(), words.ravel()], 1), axis=0)
        banks = different[:, 0] * (WAVE // BANK) + different[:, 1] % (WAVE // BANK)
        bank, count = np.unique(banks, return_counts=True)
        most = np.zeros(int(lanes.max()) // together + 1, np.int64)
        np.maximum.at(most, bank // (WAVE // BANK), count)
        self.shared_waves += int(most.sum())
