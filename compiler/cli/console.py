"""Output of the command: progress and errors on stderr, tables and JSON on stdout."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from compiler.errors import BatonError, CompilerOutputError
from compiler.support.progress import on_progress

from .files import json_text

_WIDTH_OF_FILES = 160
"""Columns of a table that does not go to a terminal."""


_NARROW = 120
"""Terminal width from which tables show all their columns."""

_is_quiet = False


def set_verbosity(level: int) -> None:
    """Choose what comes on stderr besides errors.

    `level`: -1 nothing, 0 the steps of a job, 1 also what Baton logs, 2 also for debugging.
    """
    global _is_quiet
    _is_quiet = level < 0
    threshold = {-1: logging.ERROR, 0: logging.NOTSET, 1: logging.INFO}.get(level, logging.DEBUG)
    logging.getLogger("baton").setLevel(threshold)
    if level > 0:
        logging.basicConfig(format="%(name)s: %(message)s")


class Steps:
    """Times the steps of a job and shows them on stderr.

    `seconds`: wall time of each finished step, in order.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._console = Console(stderr=True, quiet=quiet or _is_quiet)

    @contextmanager
    def step(self, name: str, detail: str = "") -> Iterator[None]:
        """Time the body; while it runs, a terminal shows its name and the progress of builds."""
        shown = escape(f"{name} {detail}".rstrip())
        start = time.perf_counter()
        with (
            self._console.status(f"{shown} ...") as status,
            on_progress(lambda progress: status.update(f"{shown}: {escape(str(progress))}")),
        ):
            yield
        self.seconds[name] = time.perf_counter() - start
        self._console.print(f"  {shown} [dim]{self.seconds[name]:.2f} s[/dim]", highlight=False)

    @contextmanager
    def counted(self, name: str) -> Iterator[Callable[[str], None]]:
        """Show one line on a terminal, whose text the body sets by calling what it gets."""
        with self._console.status(escape(name)) as status:
            yield lambda text: status.update(escape(f"{name}: {text}"))

    def progress(self, name: str, items: Sequence[Any]) -> Iterator[Any]:
        """Hand out the items, and show on a terminal how many are done."""
        start = time.perf_counter()
        yield from track(items, escape(name), console=self._console, transient=True)
        self.seconds[name] = time.perf_counter() - start
        self.note(f"{name} {len(items)} {self.seconds[name]:.2f} s")

    @property
    def shows_progress(self) -> bool:
        """Whether a progress bar on stderr would be seen."""
        return self._console.is_terminal and not self._console.quiet

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(f"  {escape(text)}", highlight=False)


@dataclass(frozen=True)
class _Table:
    """A table that leaves out columns on a narrow terminal."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str
    numbers: int
    wide: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        is_narrow = options.max_width < _NARROW
        shown = [
            index for index, name in enumerate(self.header) if not (is_narrow and name in self.wide)
        ]
        title = escape(self.title) if self.title else None
        made = Table(title=title, title_justify="left", title_style="bold")
        for index in shown:
            right = index >= len(self.header) - self.numbers
            made.add_column(
                escape(self.header[index]),
                justify="right" if right else "left",
                overflow="fold",
                no_wrap=right,
            )
        for row in self.rows:
            made.add_row(*(escape(str(row[index])) for index in shown))
        yield made


_hints: list[str] = []


@contextmanager
def interrupt_hint(text: str) -> Iterator[None]:
    """Add a hint on how to continue to the message for Ctrl-C in the body."""
    _hints.append(text)
    try:
        yield
    finally:
        _hints.pop()


def end_on_interrupt() -> None:
    """Have Ctrl-C end this process at once, with one line.

    An exception would wait for candidates that are being built and measured, and become TVM's
    error where it crosses TVM. Worker processes end with their pipes.
    """
    signal.signal(signal.SIGINT, _end)


def _end(*_: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
    hint = f"; {_hints[-1]}" if _hints else ""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}\nbaton: interrupted{hint}\n".encode())
    leave(130)


def leave(status: int) -> NoReturn:
    """End this process as `sys.exit` does, but leave its objects and threads to the system.

    Taking a built module apart takes as long as importing TVM.
    """
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # else Python says what is wrong with them
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    numbers: int = 0,
    wide: Sequence[str] = (),
) -> _Table:
    """A table of text.

    `header`, `rows`: one cell per column. `title`: shown above the table. `numbers`: how many of
    the last columns are aligned to the right. `wide`: columns that only wide terminals show.
    """
    return _Table(header, rows, title, numbers, wide)


def show(*parts: Any) -> None:
    """Print tables and lines on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_FILES)
    for part in parts:
        is_line = isinstance(part, str)
        console.print(escape(part) if is_line else part, highlight=False, soft_wrap=is_line)


def show_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json_text(document))


def show_found(found: Any, as_json: bool, show_text: Callable[[Any], None]) -> None:
    """Print what a command found: its `to_json`, or as `show_text` does."""
    if as_json:
        show_json(found.to_json())
    else:
        show_text(found)


@contextmanager
def failing_on_full_output() -> Iterator[None]:
    """End the process with one line and exit code 1 where stdout can't be written."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python flushes again at its end
        sys.exit(f"baton: error: can't write to stdout: {error.strerror}")


@contextmanager
def failures(debug: bool) -> Iterator[None]:
    """End the command with one line and exit code 1 on any error that Baton raises on purpose.

    A C++ compiler's output keeps its lines.

    `debug`: let the exception through, with its traceback.
    """
    try:
        yield
    except BatonError as error:
        if debug:
            raise
        is_output = isinstance(error, CompilerOutputError)
        text = str(error) if is_output else " ".join(str(error).split())
        sys.stderr.write(f"baton: error: {text}\n")
        raise typer.Exit(1) from None
