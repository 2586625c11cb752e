#!/usr/bin/env python3
"""Rewrite old tuning logs in the current form; the same as `baton convert-log`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from compiler.cli import run_command

if __name__ == "__main__":
    run_command("convert-log")
