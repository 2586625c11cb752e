"""`baton partition`: select subgraphs of a model for backends."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile import BuildOptions, check_option_names, import_model
from .console import Steps, show, table
from .files import write_text

if TYPE_CHECKING:
    import tvm

    from compiler.partition import Candidate, SubgraphInfo


@dataclass(frozen=True)
class Partitioned:
    """A partitioned module, its subgraphs, and the rejected candidates."""

    mod: tvm.IRModule
    subgraphs: list[SubgraphInfo]
    rejected: list[Candidate] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "subgraphs": [asdict(info) for info in self.subgraphs],
            "rejected": [asdict(candidate) for candidate in self.rejected],
        }


def partition_model(
    model: Path,
    options: BuildOptions,
    output: Path | None = None,
    steps: Steps | None = None,
    *,
    dot: Path | None = None,
) -> Partitioned:
    """Import a model file, partition it for the backends, and write the module.

    `options`: shapes, backends, plugins and backend options are used. `output`: gets the plain
    Relax module: in TVM's JSON format (`tvm.ir.load_json`) if the name ends in `.json`, as
    TVMScript otherwise. `dot`: gets the graph with its subgraphs as Graphviz DOT text.
    Raises FrontendError, PartitionError: the model can't be imported, or a backend fails. Raises
    ExportError: a file can't be written.
    """
    import tvm

    from compiler.partition import partition_with_report, subgraphs
    from compiler.partition.dot import to_dot
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
    rejected = [candidate for candidate in result.candidates if not candidate.accepted]
    return Partitioned(mod, subgraphs(mod), rejected)


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
