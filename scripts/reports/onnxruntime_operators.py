"""Writes docs/onnxruntime_operators.md: onnxruntime's own operators, read or refused.

python -m scripts.reports.onnxruntime_operators            # writes the file
python -m scripts.reports.onnxruntime_operators --check    # fails if the file is not up to date
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

from compiler.relay.frontend.onnx.ops.microsoft import CONVERTERS, REFUSED

PATH = Path(__file__).parents[2] / "docs" / "onnxruntime_operators.md"

INTRODUCTION = """# onnxruntime's own operators

What onnxruntime's optimizer, its tools and Olive write into models besides ONNX's operators, and
what `from_onnx` makes of it. Shapes are static: caches of keys and values have the lengths that
their inputs have. Forms of these operators that are not supported are refused by name, and so are
attributes that a converter does not read.

This file is written by `scripts/reports/onnxruntime_operators.py`.
"""


def table() -> str:
    """The whole document."""
    lines = [INTRODUCTION, f"## Read: {len(CONVERTERS)}", "", "| operator | what |", "|---|---|"]
    for (domain, name), converter in sorted(CONVERTERS.items()):
        summary = (inspect.getdoc(converter) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"| `{domain}.{name}` | {summary} |".replace("`com.microsoft.", "`"))
    lines += ["", f"## Refused: {len(REFUSED)}", "", "| operator | why |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for (_, name), reason in sorted(REFUSED.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the document, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    text = table()
    if arguments.check:
        if PATH.read_text(encoding="utf-8") != text:
            sys.exit(f"{PATH} is not up to date; run scripts/reports/onnxruntime_operators.py")
    else:
        PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
