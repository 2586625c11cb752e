#!/usr/bin/env python3
"""Show what tuning logs do for a model, or check all their records; the same as `baton replay`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from compiler.cli import run_command

if __name__ == "__main__":
    run_command("replay")
