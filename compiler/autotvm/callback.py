"""Callbacks of `tuner.tune`: they get (tuner, inputs, results) with each measured batch."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from ..records.autotvm.record import MeasureInput, encode
from ..records.log_file import append_lines
from ..records.untrusted_json import mean_seconds
from .env import GLOBAL_SCOPE
from .tuner.base import SI_SCALE

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[Any]], None]


def log_to_file(file_out: str | os.PathLike | TextIO, protocol: str = "json") -> Callback:
    """Append each record to a log, or write it to an open text file.

    Raises
    ------
    RecordError
        When called: the file can't be written, or `protocol` is not "json".
    """

    def write(_: Any, inputs: Sequence[MeasureInput], results: Sequence[Any]) -> None:
        lines = [encode(inp, result, protocol) for inp, result in zip(inputs, results)]
        if isinstance(file_out, (str, os.PathLike)):
            append_lines(file_out, lines)
        else:
            file_out.write("".join(line + "\n" for line in lines))

    return write


def log_to_database(db: Any) -> Callback:
    """Hand each (input, result) to a database's `save`."""

    def write(_: Any, inputs: Sequence[MeasureInput], results: Sequence[Any]) -> None:
        for inp, result in zip(inputs, results):
            db.save(inp, result)

    return write


class Monitor:
    """Keeps what was measured.

    `scores`: operations per second of each trial; 0 for a failed one. `timestamps`: their Unix
    times.
    """

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[Any]) -> None:
        for result in results:
            self.scores.append(tuner.task.flop / mean_seconds(result.costs, result.error_no))
            self.timestamps.append(result.timestamp)

    def reset(self) -> None:
        """Forget everything."""
        self.scores.clear()
        self.timestamps.clear()

    def trial_scores(self) -> np.ndarray:
        """Operations per second of each trial, (n,)."""
        return np.asarray(self.scores)

    def trial_timestamps(self) -> np.ndarray:
        """Unix time of each trial, (n,)."""
        return np.asarray(self.timestamps)


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Show current and best rate, trials and seconds left on stderr.

    A terminal gets one line that is rewritten, a file a line at every tenth of the trials; nothing
    is shown while `autotvm.GLOBAL_SCOPE.silent` is set.

    Parameters
    ----------
    total : int
        Trials that are going to be measured.
    """
    scale = SI_SCALE[si_prefix]
    started = time.monotonic()
    state = {"trials": 0, "shown": 0}

    def show(tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[Any]) -> None:
        state["trials"] += len(results)
        if GLOBAL_SCOPE.silent:
            return
        trials = state["trials"]
        right = [each for each in results if each.error_no == 0]
        rates = [tuner.task.flop / mean_seconds(each.costs, each.error_no) for each in right]
        seconds = time.monotonic() - started
        left = seconds / trials * max(total - trials, 0)
        text = (
            f"{prefix} current/best {max(rates, default=0.0) / scale:8.2f}/"
            f"{tuner.best_flops / scale:8.2f} {si_prefix}FLOPS  {trials}/{total} trials  "
            f"{seconds:.0f} s, {left:.0f} s left"
        )
        if sys.stderr.isatty():
            sys.stderr.write("\r" + text + ("\n" if trials >= total else ""))
        elif trials * 10 // max(total, 1) > state["shown"] or trials >= total:
            state["shown"] = trials * 10 // max(total, 1)
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    return show
