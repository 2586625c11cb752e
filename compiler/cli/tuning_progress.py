"""Progress of a tuning run: a live line on a terminal, plain lines elsewhere, and a picture."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .files import write_text

_COLUMNS = 3
_WIDTH, _HEIGHT = 320, 150
_LEFT, _TOP, _BOTTOM, _GAP = 52, 44, 26, 22
_LINE, _POINTS, _BASE = "#1f5fa8", "#b8c7dc", "#c0392b"


@dataclass
class Trials:
    """Measurements of one task."""

    name: str
    gflops: list[float] = field(default_factory=list)  # of each trial; 0 for a failed one
    fallback: float = 0.0  # GFLOP/s of the fallback; 0 if it was not measured

    @property
    def best(self) -> float:
        return max(self.gflops, default=0.0)

    @property
    def best_so_far(self) -> list[float]:
        """Best rate after each trial."""
        return [float(rate) for rate in np.maximum.accumulate(self.gflops or [0.0])]


class Progress:
    """Shows current and best rate, trials and time left; a callback of `tuner.tune`.

    `total`: trials of all tasks.
    `quiet`: show nothing.
    """

    def __init__(self, total: int, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.trials: list[Trials] = []
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal and not quiet
        self._quiet = quiet
        self._total, self._done, self._started = total, 0, time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._row = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, name: str, known: Sequence[float], trials_known: int) -> None:
        """Begin a task, of which some trials were measured before."""
        self.trials.append(Trials(name, list(known)))
        self._done += trials_known
        self._show(0.0)

    def __call__(self, tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        rates = [
            tuner.task.flop / float(np.mean(result.costs)) / 1e9 if result.error_no == 0 else 0.0
            for result in results
        ]
        self.trials[-1].gflops += rates
        self._done += len(rates)
        self._show(max(rates, default=0.0))

    def finish(self, skipped: int) -> None:
        """End a task; `skipped` trials were planned and not needed."""
        self._done += skipped
        if not self._live and not self._quiet:
            task, seconds = self.trials[-1], time.monotonic() - self._started
            left = seconds / max(self._done, 1) * max(self._total - self._done, 0)
            sys.stderr.write(
                f"  {task.name}: best {task.best:.1f} GFLOP/s in {len(task.gflops)} trials; "
                f"{self._done}/{self._total} trials, {seconds:.0f} s, {left:.0f} s left\n"
            )

    def _show(self, current: float) -> None:
        task = self.trials[-1]
        self._bar.update(
            self._row,
            completed=self._done,
            description=f"{task.name}  {current:.1f} now, {task.best:.1f} best GFLOP/s",
        )


def write_picture(trials: Sequence[Trials], title: str, path: Path) -> None:
    """Write best-so-far against trials, one panel for each task, as SVG.

    Raises ExportError: the file can't be written.
    """
    write_text(path, picture(trials, title))


def picture(trials: Sequence[Trials], title: str) -> str:
    """An SVG document: each trial as a dot, the best so far as a line, the fallback dashed."""
    rows = -(-len(trials) // _COLUMNS)
    width = _COLUMNS * (_WIDTH + _GAP) + _GAP
    height = 40 + rows * (_HEIGHT + _TOP + _BOTTOM)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_GAP}" y="26" font-size="15">{escape(title)}</text>',
    ]
    for place, task in enumerate(trials):
        row, column = divmod(place, _COLUMNS)
        left = _GAP + column * (_WIDTH + _GAP)
        lines += _panel(task, left, 40 + row * (_HEIGHT + _TOP + _BOTTOM))
    return "\n".join([*lines, "</svg>", ""])


def _panel(task: Trials, left: int, top: int) -> list[str]:
    highest = max(task.best, task.fallback) * 1.05 or 1.0
    count = max(len(task.gflops), 1)
    x0, y0 = left + _LEFT, top + _TOP
    wide = _WIDTH - _LEFT

    def at(trial: float, rate: float) -> str:
        return f"{x0 + wide * trial / count:.1f},{y0 + _HEIGHT * (1 - rate / highest):.1f}"

    best = task.best_so_far
    path = " ".join(at(trial + 1, rate) for trial, rate in enumerate(best))
    lines = [
        f'<text x="{left}" y="{top + 26}">{escape(task.name)}</text>',
        f'<rect x="{x0}" y="{y0}" width="{wide}" height="{_HEIGHT}" fill="none" stroke="#888"/>',
        f'<text x="{x0 - 6}" y="{y0 + 10}" text-anchor="end">{highest:.0f}</text>',
        f'<text x="{x0 - 6}" y="{y0 + _HEIGHT}" text-anchor="end">0</text>',
        f'<text x="{x0 + wide}" y="{y0 + _HEIGHT + 14}" text-anchor="end">{count} trials</text>',
        f'<text x="{x0}" y="{y0 + _HEIGHT + 14}">GFLOP/s, best {task.best:.1f}</text>',
    ]
    for trial, rate in enumerate(task.gflops):
        x, y = at(trial + 1, rate).split(",")
        lines.append(f'<circle cx="{x}" cy="{y}" r="2" fill="{_POINTS}"/>')
    lines.append(f'<polyline points="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>')
    if task.fallback:
        y = at(0, task.fallback).split(",")[1]
        lines.append(
            f'<line x1="{x0}" x2="{x0 + wide}" y1="{y}" y2="{y}" stroke="{_BASE}" '
            'stroke-dasharray="5 4"/>'
        )
    return lines
