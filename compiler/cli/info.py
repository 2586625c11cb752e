"""`baton info`: what a model or a library takes and gives, and where it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compiler.errors import BatonError, InputError

from .compile import BuildOptions, import_model, inputs_of
from .console import Steps, show, table
from .run import LIBRARIES


@dataclass(frozen=True)
class Description:
    """A model file or a library, without running it."""

    file: str
    kind: str  # "library" or "model"
    nbytes: int  # size of the file
    inputs: list[str]  # inputs, outputs: such as "data: float32[1, 3, 224, 224]"
    outputs: list[str]
    # Symbols of dynamic dimensions, with their upper bounds; None without one
    symbols: dict[str, int | None]
    weights_bytes: int
    # The rest is empty for a model.
    target: str = ""
    cpu_features: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    kernels: int = 0
    # What runs subgraphs, and how many: {"tvm": 2}; empty where nothing was partitioned
    engines: dict[str, int] = field(default_factory=dict)
    baton_version: str = ""
    tvm_version: str = ""
    problem: str | None = None  # why the library can't run on this machine

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def describe(path: Path, options: BuildOptions) -> Description:
    """Read a library's description, or import a model file; nothing of a library is run.

    `options`: shapes and extents of a model's inputs, as for `baton compile`. Raises LoadError,
    FrontendError: the file is damaged, or of another kind. Raises InputError: there are options for
    a library.
    """
    if path.suffix in LIBRARIES:
        if options.shapes or options.extents:
            raise InputError(f"{path} is a library; --shape and --extent are for model files")
        return _describe_library(path)
    return _describe_model(path, options)


def _describe_library(path: Path) -> Description:
    from compiler.runtime.host import require_cpu_features
    from compiler.runtime.load import check_file, this_machine

    checked = check_file(path)
    metadata, problem = checked.metadata, None
    try:
        require_cpu_features(metadata, "the library")
    except BatonError as error:
        problem = str(error)
    if checked.machine != this_machine():
        problem = f"it is for {checked.machine}, and this machine is {this_machine()}"
    symbols = {
        extent: metadata.bounds.get(extent)
        for info in metadata.inputs
        for extent in info.shape
        if isinstance(extent, str)
    }
    return Description(
        *(str(path), "library", path.stat().st_size),
        [str(info) for info in metadata.inputs],
        [str(info) for info in metadata.outputs],
        symbols,
        metadata.weights_nbytes,
        metadata.target,
        list(metadata.cpu_features),
        list(metadata.devices),
        len(metadata.report.get("kernels", ())),
        dict(Counter(str(part.get("runtime", "tvm")) for part in metadata.partition.values())),
        metadata.baton_version,
        metadata.tvm_version,
        problem,
    )


def _describe_model(path: Path, options: BuildOptions) -> Description:
    from compiler.ir.constants import view_of
    from compiler.ir.dynamic_shape import bounds
    from compiler.lowering.metadata import outputs_of

    mod, params = import_model(path, options, Steps())
    inputs = inputs_of(mod, params)
    known = bounds(mod["main"])
    symbols = {
        extent: known.get(extent)
        for info in inputs
        for extent in info.shape
        if isinstance(extent, str)
    }
    return Description(
        *(str(path), "model", path.stat().st_size),
        [str(info) for info in inputs],
        [str(info) for info in outputs_of(mod)],
        symbols,
        sum(view_of(value).nbytes for value in params.values()),
    )


def show_description(found: Description) -> None:
    """Print a line for each fact."""
    rows = [("file", f"{found.file} ({found.kind}, {found.nbytes / 1e6:.1f} MB)")]
    rows += [("input", text) for text in found.inputs]
    rows += [("output", text) for text in found.outputs]
    rows += [
        ("dynamic dimension", name if most is None else f"{name}, at most {most}")
        for name, most in found.symbols.items()
    ]
    rows.append(("weights", f"{found.weights_bytes / 1e6:.1f} MB"))
    if found.kind == "library":
        engines = ", ".join(f"{count} in {name}" for name, count in found.engines.items())
        rows += [
            ("target", found.target),
            ("devices", ", ".join(found.devices)),
            ("CPU features", " ".join(found.cpu_features) or "none"),
            ("kernels", str(found.kernels)),
            ("subgraphs", engines or "none"),
            ("built with", f"Baton {found.baton_version}, TVM {found.tvm_version}"),
            ("this machine", found.problem or "can run it"),
        ]
    show(table(("fact", "value"), rows))
