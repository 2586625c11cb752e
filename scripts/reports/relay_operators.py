"""Writes docs/relay_operators.md: every Relay operator, and what it becomes in Relax.

python -m scripts.reports.relay_operators            # writes the file
python -m scripts.reports.relay_operators --check    # fails if the file is not up to date
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

PATH = Path(__file__).parents[2] / "docs" / "relay_operators.md"
from compiler.relay.op import lookup  # noqa: E402  (needs the path above)
from compiler.relay.op.op_def import REQUIRED, Operator  # noqa: E402

HOW = {
    "direct": "one operator of Relax, arguments adjusted",
    "composed": "several operators of Relax",
    "TOPI": "a compute of `tvm.topi` as a separate operator",
    "TE": "a compute written in Baton, as a separate operator",
}

INTRODUCTION = """# Relay operators

`relay.nn.conv2d(...)` makes a call of the Relay operator `nn.conv2d`; Relay text and saved modules
hold the same calls. `relay.build`, `relay.create_executor` and `relay.vm.compile` replace each call
by what it is in Relax. Operands that are not known before a program runs, such as the shape of
`dyn.reshape`, become symbolic dimensions.

```python
from compiler import relay

x = relay.var("x", shape=(1, 3, 32, 32))
y = relay.nn.conv2d(x, relay.var("w"), channels=8, kernel_size=(3, 3), padding=(1, 1))
net = relay.Function(relay.analysis.free_vars(y), relay.nn.relu(y))
lib = relay.build(net, target="llvm")
```

Operands and attributes that do not fit raise `compiler.errors.RelayTypeError`, which names the
operator, the argument and the types. The last table lists the operators that do not apply; calling
one raises `compiler.errors.UnsupportedRelayOperatorError`, a `NotImplementedError`.

This file is written by `scripts/reports/relay_operators.py`.
"""


def table() -> str:
    """The whole document."""
    operators = [lookup.lookup(name) for name in lookup.names()]
    available = [each for each in operators if not each.why_not]
    lines = [INTRODUCTION, "## How", "", "| class | what it means | operators |", "|---|---|---|"]
    for how, meaning in HOW.items():
        lines.append(f"| {how} | {meaning} | {sum(each.how == how for each in available)} |")
    lines += ["", "## Operators", "", "| operator | operands | attributes | class | what |"]
    lines.append("|---|---|---|---|---|")
    lines += [_row(each) for each in available]
    lines += ["", "## Operators that do not apply", "", "| operator | why |", "|---|---|"]
    lines += [f"| `{each.name}` | {each.why_not} |" for each in operators if each.why_not]
    return "\n".join(lines) + "\n"


def _row(each: Operator) -> str:
    attributes = ", ".join(
        name if default is REQUIRED else f"{name}={default!r}"
        for name, default in each.attributes.items()
    )
    summary = (inspect.getdoc(each.function) or "").splitlines()[0]
    cells = [f"`{each.name}`", ", ".join(each.operands), attributes, each.how, summary]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write the document, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    text = table()
    if arguments.check:
        if PATH.read_text(encoding="utf-8") != text:
            sys.exit(f"{PATH} is not up to date; run scripts/reports/relay_operators.py")
    else:
        PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
