"""Write docs/onnxruntime_names.md: the state of each public name of the installed onnxruntime.

python -m scripts.reports.onnxruntime_names
"""

from __future__ import annotations

import pathlib
import sys
from collections import Counter
from types import ModuleType
from typing import Any

from compiler.ort.names import state_of

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "onnxruntime_names.md"
CLASSES = (
    "InferenceSession",
    "SessionOptions",
    "RunOptions",
    "OrtValue",
    "IOBinding",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
)
STATES = ("works", "ignored", "rejected", "missing")
_HEAD = """\
# States of onnxruntime's names

Each public name of onnxruntime {version} has one of four states in
[`compiler.ort`](onnxruntime_scripts.md):

* **works**: does what it does in onnxruntime; a test compares both.
* **ignored**: accepted without effect, because Baton decides it elsewhere. Functions log it to
  `baton.ort`.
* **rejected**: an error, `compiler.errors.RejectedNameError`, that says what to use instead.
* **missing**: an `AttributeError`.

`python -m scripts.reports.onnxruntime_names` writes this page.

| | works | ignored | rejected | missing |
|---|---:|---:|---:|---:|
"""


def public_names(onnxruntime: Any) -> dict[str, list[str]]:
    """Public names of onnxruntime's module, as "onnxruntime", and of its main classes."""
    names = {"onnxruntime": [*_public(onnxruntime), "__version__"]}
    return names | {each: _public(getattr(onnxruntime, each)) for each in CLASSES}


def page(onnxruntime: Any) -> str:
    """The page, Markdown."""
    names = public_names(onnxruntime)
    counts = {
        owner: Counter(state_of(f"{owner}.{name}")[0] for name in listed)
        for owner, listed in names.items()
    }
    total = sum(counts.values(), Counter())
    lines = [
        f"| {owner} | {' | '.join(str(count[state]) for state in STATES)} |"
        for owner, count in {**counts, "**all**": total}.items()
    ]
    parts = [_HEAD.format(version=onnxruntime.__version__) + "\n".join(lines)]
    for owner, listed in names.items():
        rows = []
        for name in sorted(listed, key=lambda name: (_rank(owner, name), name)):
            state, note = state_of(f"{owner}.{name}")
            rows.append(f"| `{name}` | {state} | {note} |")
        parts.append(
            "\n".join([f"## {owner}", "", "| name | state | note |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _rank(owner: str, name: str) -> int:
    return STATES.index(state_of(f"{owner}.{name}")[0])


def _public(owner: Any) -> list[str]:
    """Public names; of submodules only `capi`, which comes with the package's import."""
    loaded = {
        name
        for name in dir(owner)
        if f"onnxruntime.{name}" in sys.modules and name != "capi" and isinstance(owner, ModuleType)
    }
    return [name for name in dir(owner) if not name.startswith("_") and name not in loaded]


if __name__ == "__main__":
    import onnxruntime

    PAGE.write_text(page(onnxruntime))
