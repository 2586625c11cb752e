"""`baton partition`: select subgraphs of a model for backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile import BuildOptions, check_option_names, import_model
from .console import Steps, show, table
from .files import write_text

if TYPE_CHECKING:
    import tvm

    from compiler.partition import Candidate, SubgraphInfo
    from compiler.partition.explanation import Explanation, Left


@dataclass(frozen=True)
class Partitioned:
    """A partitioned module, its subgraphs, the rejected candidates, and why, if asked for."""

    mod: tvm.IRModule
    subgraphs: list[SubgraphInfo]
    rejected: list[Candidate] = field(default_factory=list)
    explanation: Explanation | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        found: dict[str, Any] = {
            "subgraphs": [asdict(info) for info in self.subgraphs],
            "rejected": [asdict(candidate) for candidate in self.rejected],
        }
        if self.explanation is not None:
            found["explanation"] = self.explanation.to_json()
        return found


def partition_model(
    model: Path,
    options: BuildOptions,
    output: Path | None = None,
    steps: Steps | None = None,
    *,
    dot: Path | None = None,
    explain: bool = False,
    what_if: Sequence[Sequence[str]] = (),
) -> Partitioned:
    """Import a model file, partition it for the backends, and write the module.

    `options`: shapes, backends, plugins and backend options are used. `output`: gets the plain
    Relax module: in TVM's JSON format (`tvm.ir.load_json`) if the name ends in `.json`, as
    TVMScript otherwise. `dot`: gets the graph with its subgraphs as Graphviz DOT text.
    `explain`, `what_if`: as `compiler.partition.explain`; no counterfactuals: all that help.
    Raises FrontendError, PartitionError: the model can't be imported, or a backend fails. Raises
    ExportError: a file can't be written.
    """
    import tvm

    from compiler.partition import partition_with_report, subgraphs
    from compiler.partition.dot import to_dot
    from compiler.partition.explanation import explain_partitioning
    from compiler.relay import to_relax

    steps = steps or Steps()
    check_option_names(options)
    mod, params = import_model(model, options, steps)
    with steps.step("partition", ", ".join(options.backends)):
        result = partition_with_report(mod, options.backends, params, **options.backend_options)
    mod = result.module
    if dot is not None:
        with steps.step("draw", str(dot)):
            write_text(dot, to_dot(result, title=model.name))
    if output is not None:
        with steps.step("write", str(output)):
            plain = to_relax(mod)
            text = tvm.ir.save_json(plain) if output.suffix == ".json" else plain.script()
            write_text(output, text)
    explanation = None
    if explain or what_if:
        with steps.step("explain"):
            explanation = explain_partitioning(result, what_if=what_if or None)
    rejected = [candidate for candidate in result.candidates if not candidate.accepted]
    return Partitioned(mod, subgraphs(mod), rejected, explanation)


def show_partitioned(partitioned: Partitioned) -> None:
    """Print one line per subgraph, and one per rejected candidate with the reason."""
    show(subgraph_table(partitioned.subgraphs))
    if partitioned.rejected:
        show(
            table(
                ("backend", "strategy", "operators", "rejected because"),
                [
                    (each.backend, each.strategy, " ".join(each.operators), each.reason)
                    for each in partitioned.rejected
                ],
                title=f"{len(partitioned.rejected)} rejected subgraphs",
            )
        )

    if partitioned.explanation is not None:
        _show_explanation(partitioned.explanation)


_MOST_ROWS = 20
"""Rows of a table of boundaries, cuts or counterfactuals; JSON has all."""


def _show_explanation(found: Explanation) -> None:
    rows: list[tuple[object, ...]] = [
        (
            each.backend,
            each.regions or "",
            each.operators,
            f"{each.operators_share:.1%}",
            f"{each.flops / 1e6:.2f}",
            f"{each.flops_share:.1%}",
            f"{each.microseconds:.0f}",
        )
        for each in found.shares
    ]
    header = ["back end", "regions", "operators", "share", "MFLOP", "share", "us predicted"]
    show(table(header, rows, title="Where operators run", numbers=6))
    if found.left:
        groups: dict[tuple[str, tuple[Any, ...]], list[Left]] = {}
        for left in found.left:
            groups.setdefault((left.operator, left.reasons), []).append(left)
        rows = [
            (
                operator,
                len(nodes),
                _named([each.name for each in nodes]),
                "; ".join(f"{each.backend} ({each.kind}): {each.reason}" for each in reasons),
            )
            for (operator, reasons), nodes in groups.items()
        ]
        show(table(["operator", "count", "nodes", "why"], rows, title="Left to the build"))
    if found.boundaries:
        rows = [
            (
                each.name,
                f"{each.producer} -> {each.consumer}",
                f"{each.shape} {each.dtype}",
                each.bytes,
                f"{each.microseconds:.0f}",
            )
            for each in found.boundaries
        ]
        total = sum(each.bytes for each in found.boundaries)
        title = f"{len(rows)} boundaries, {total} bytes"
        header = ["tensor of", "from, to", "type", "bytes", "us predicted"]
        show(table(header, rows[:_MOST_ROWS], title=title, numbers=2))
    if found.cuts:
        rows = [(each.backend, f"{each.one}, {each.two}", each.reason) for each in found.cuts]
        title = "Adjacent subgraphs that stay apart"
        show(table(["back end", "subgraphs", "because"], rows[:_MOST_ROWS], title=title))
    show(*map(str, found.counterfactuals[:_MOST_ROWS]))


def _named(names: list[str]) -> str:
    """The first names of a list."""
    distinct = list(dict.fromkeys(names))
    return " ".join(distinct[:4]) + (f" and {len(distinct) - 4} more" if distinct[4:] else "")


def subgraph_table(infos: list[SubgraphInfo]) -> Any:
    """Backend, strategy, operators, inputs, target and attributes of each subgraph."""
    if not infos:
        return "No subgraph was accepted."
    return table(
        ("subgraph", "backend", "strategy", "operators", "inputs", "target", "attributes"),
        [
            (
                info.name,
                info.backend,
                info.strategy,
                " ".join(info.operators),
                " ".join(name or "(computed)" for name in info.input_names),
                info.target or "(the build's)",
                " ".join(f"{key}={value}" for key, value in info.attrs.items() if key != "target"),
            )
            for info in infos
        ],
        title=f"{len(infos)} accepted subgraphs",
    )
