#!/usr/bin/env python3
"""List a model's tuning tasks; the same as `baton extract-tasks`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from compiler.cli import run_command

if __name__ == "__main__":
    run_command("extract-tasks")
