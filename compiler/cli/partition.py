"""`baton partition`: what backends claim of an ONNX model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile import BuildOptions, import_model, partition_module
from .console import Steps, show, table
from .files import write_text

if TYPE_CHECKING:
    import tvm

    from compiler.partition import SubgraphInfo


@dataclass(frozen=True)
class Partitioned:
    """A partitioned module and its subgraphs."""

    mod: tvm.IRModule
    subgraphs: list[SubgraphInfo]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {"subgraphs": [asdict(info) for info in self.subgraphs]}


def partition_model(
    model: Path, options: BuildOptions, output: Path | None = None, steps: Steps | None = None
) -> Partitioned:
    """Import an ONNX file, let the backends of the options claim subgraphs, write the module.

    Parameters
    ----------
    model : Path
    options : BuildOptions
        Its shapes, backends, plugins and backend options count.
    output : Path, optional
        A `.json` gets the module as TVM saves it, with which `tvm.ir.load_json` makes it anew;
        any other name gets TVMScript text.
    steps : Steps, optional
        Shows the progress.

    Raises
    ------
    FrontendError, PartitionError
        The model or a backend is at fault.
    ExportError
        `output` can't be written.
    """
    import tvm

    from compiler.partition import subgraphs

    steps = steps or Steps()
    mod, params = import_model(model, options, steps)
    mod = partition_module(mod, params, options, steps)
    if output is not None:
        with steps.step("write", str(output)):
            write_text(output, tvm.ir.save_json(mod) if output.suffix == ".json" else mod.script())
    return Partitioned(mod, subgraphs(mod))


def show_partitioned(partitioned: Partitioned) -> None:
    """Print one line per subgraph."""
    show(subgraph_table(partitioned.subgraphs))


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
                " ".join(f"{key}={value}" for key, value in _own_attributes(info).items()),
            )
            for info in infos
        ],
        title=f"{len(infos)} accepted subgraphs",
    )


def _own_attributes(info: SubgraphInfo) -> dict[str, str]:
    return {key: value for key, value in info.attrs.items() if key != "target"}
