"""Runs steps of a stage in one process, for `runner.py`, which reads what it prints.

A step that raises ends the process with status 3: what is left of the stage runs in a new one,
since an error of CUDA's makes all later calls fail.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import traceback
from typing import Any

MARK = "@kit "
REPLACE_ME = 3


def say(**what: Any) -> None:
    """Tell the runner something."""
    print(MARK + json.dumps(what), flush=True)


def main() -> int:
    """Run the steps of the file that is named; each names a function as "module:function"."""
    steps = json.loads(pathlib.Path(sys.argv[1]).read_text())
    for step in steps:
        module, _, function = step["run"].partition(":")
        say(begin=step["step"])
        try:
            call = getattr(importlib.import_module(f"scripts.gpu_kit.on_device.{module}"), function)
            result = call(**step.get("arguments", {}))
        except Exception as error:
            traceback.print_exc(file=sys.stdout)
            text = " ".join(str(error).split())[:300]
            say(status="failed", because=f"{type(error).__name__}: {text}")
            return REPLACE_ME
        say(**result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
