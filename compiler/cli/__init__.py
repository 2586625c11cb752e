"""The `baton` command: one module per job, and `app`, which reads the command line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from compiler.support.lazy_import import lazy_attributes

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Python looks for unreachable circles after each 700 new objects, a tenth of a build's time."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "benchmark": ".bench",
        "compile_model": ".compile",
        "partition_model": ".partition",
        "convert_logs": ".convert_log",
        "Difference": ".diff",
        "replay_model": ".replay",
        "profile_model": ".profile",
        "run_model": ".run",
        "tune_model": ".tune",
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `baton` command and exit.

    `arguments`: the words after `baton`; those of this process by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_verbose = words[1:2] in (["-v"], ["--verbose"])
    era, rest = _era(words[2 if is_verbose else 1 :])
    is_module = rest[:1] == ["-m"] and len(rest) > 1
    if words[:1] == ["run"] and rest and (is_module or rest[0].endswith(".py")):
        # What follows belongs to the script, options included.
        if not is_module and not os.path.isfile(rest[0]):
            sys.exit(f"baton: error: there is no script {rest[0]!r}")
        from compiler.legacy import run_module, run_script

        if not is_verbose:
            from .script_errors import print_error

            sys.excepthook = print_error
        if is_module:
            run_module(rest[1], rest[2:], era)
        else:
            run_script(rest[0], rest[1:], era)
        return
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from .app import app
    from .console import end_on_interrupt, failing_on_full_output, leave

    end_on_interrupt()
    try:
        with failing_on_full_output():
            app(args=words, prog_name="baton")
    except SystemExit as end:
        if arguments is None and words[:1] == ["compile"] and isinstance(end.code, int):
            leave(end.code)
        raise


def _era(words: list[str]) -> tuple[str | None, list[str]]:
    """The value of `--era` at the head of `baton run`'s words, and the words after it."""
    if words[:1] == ["--era"] and len(words) > 1:
        return words[1], words[2:]
    if words and words[0].startswith("--era="):
        return words[0].partition("=")[2], words[1:]
    return None, words
