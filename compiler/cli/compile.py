"""`baton compile`: from a model file to a library and the report on its kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.errors import InputError, PartitionError
from compiler.precision import DEFAULT, INT8, KEY

from .console import Steps, show, table

if TYPE_CHECKING:
    import tvm

    from compiler.lowering.report import Report
    from compiler.mxnet.library import Loaded
    from compiler.runtime import FactoryModule, Metadata, TensorInfo

    from .quantize import Quantized


_SHOWN_SHARE = 0.05
"""Share of the whole time from which on a part of the build is named."""


@dataclass(frozen=True)
class BuildOptions:
    """How a model is imported, partitioned and built."""

    # target, target_host: as `compiler.target.parse` reads them; no host means this machine
    target: str = "llvm"
    target_host: str | None = None
    opt_level: int = 3
    disabled_passes: tuple[str, ...] = ()
    # Shapes of inputs with dynamic shapes; an extent is a number, a name, or None
    shapes: Mapping[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)  # numbers for dynamic extents
    bounds: Mapping[str, int] = field(default_factory=dict)  # the largest extents of symbols
    # Extents of symbols that get specialized kernels
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # The symbol that counts the rows of a cache, and how many there is room for
    kv_cache: Mapping[str, int] = field(default_factory=dict)
    logs: tuple[str, ...] = ()  # logs, auto_scheduler_logs: tuning logs to apply
    auto_scheduler_logs: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()  # partitioners, in order
    # "fastest": each gets what it was measured to run fastest; else all it selects, in order
    placement: str = ""
    placement_log: str = ""  # keeps and replays what was measured
    plugins: tuple[str, ...] = ()  # Python files that register partitioners
    # What the partitioners' callbacks get
    backend_options: Mapping[str, str] = field(default_factory=dict)
    # One of `compiler.precision.PRECISIONS`, or "int8" for an ONNX model that is quantized first
    precision: str = DEFAULT
    samples: Path | None = None  # for "int8": a folder as `quantize_model` takes it
    calibration: str = "minmax"  # of the samples' ranges: "minmax", "percentile" or "kl"
    weight_bits: int = 8  # of the weights that "int8" makes: 8, or 7
    # Fields of `compiler.relay.frontend.ImportLimits`; its defaults for those left out
    import_limits: Mapping[str, float] = field(default_factory=dict)
    # Whether a saved module may hold code: kernels, and calls of functions by name
    trust: bool = False


@dataclass(frozen=True)
class Compiled:
    """The description of a library's file, and what was seen on the way to it."""

    metadata: Metadata
    report: Report  # the build's
    seconds: dict[str, float]  # wall time of each step; `report.seconds` has the parts of the build
    path: Path | None  # the exported file
    quantized: Quantized | None = None  # what quantizing it first did to the model's layers

    @property
    def file_bytes(self) -> int:
        """Size of the exported file, 0 without one."""
        return self.path.stat().st_size if self.path else 0

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "library": str(self.path) if self.path else None,
            "library_bytes": self.file_bytes,
            "weights_bytes": self.report.weights_bytes,
            "seconds": self.seconds,
            "inputs": [str(info) for info in self.metadata.inputs],
            "outputs": [str(info) for info in self.metadata.outputs],
            "partition": self.metadata.partition,
            "report": self.report.to_json(),
            "quantized": self.quantized.to_json() if self.quantized else None,
        }


@dataclass(frozen=True)
class Built(Compiled):
    """A library that is in memory, too."""

    library: FactoryModule = field(kw_only=True)


def compile_model(
    model: Path,
    options: BuildOptions,
    output: Path | None = None,
    steps: Steps | None = None,
    check_inputs: Callable[[Sequence[TensorInfo]], None] = lambda _: None,
) -> Built:
    """Import a model file, partition it if backends are given, build it and export the library.

    `output`: a `.so` or `.tar`; without it the library stays in memory. `check_inputs`: gets the
    model's inputs before it is built.
    """
    from compiler.runtime.export import require_destination, require_linker

    steps = steps or Steps()
    if output is not None and require_destination(output).suffix == ".so":
        require_linker(options.target_host or options.target)
    with ExitStack() as stack:
        read, options, quantized = _calibrated(model, options, steps, stack)
        mod, params = import_model(read, options, steps)
    check_inputs(inputs_of(mod, params))
    mod = partition_module(mod, params, options, steps)
    library = build_module(mod, params, options, steps)
    if output is not None:
        with steps.step("export", str(output)):
            library.export_library(output)
    return Built(
        *(library.metadata, cast("Report", library.report), dict(steps.seconds), output, quantized),
        library=library,
    )


def _calibrated(
    model: Path, options: BuildOptions, steps: Steps, stack: ExitStack
) -> tuple[Path, BuildOptions, Quantized | None]:
    """The file to import, which of "int8" is a quantized one until the stack is closed."""
    if options.samples is None and options.precision == INT8:
        raise InputError(
            "--precision int8 needs samples to calibrate a float model with; give --data FOLDER. "
            "A model that is quantized already runs in int8 without either option"
        )
    if options.samples is None:
        return model, options, None
    if options.precision != INT8:
        raise InputError("--data is used by --precision int8 alone; give both options, or neither")
    from .model_files import with_extents
    from .quantize import quantize_model

    shapes = with_extents(model, options.shapes, options.extents)
    written = Path(stack.enter_context(tempfile.TemporaryDirectory())) / model.name
    made = quantize_model(
        *(model, options.samples, written, options.calibration, (), shapes, steps),
        weight_bits=options.weight_bits,
    )
    return written, replace(options, precision=DEFAULT, samples=None), replace(made, path="")


def import_model(
    model: Path, options: BuildOptions, steps: Steps
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Load the plugins; then the Relax module of a model file, and its weights by name."""
    from compiler.cli.pass_names import require_known
    from compiler.ir.dynamic_shape import with_bounds
    from compiler.ir.kv_cache import with_kv_cache
    from compiler.ir.shape_hints import with_sizes

    from .model_files import read_model, with_extents

    require_known(options.disabled_passes)
    load_plugins((Path(plugin) for plugin in options.plugins), steps)
    with steps.step("import", str(model)):
        shapes = with_extents(model, options.shapes, options.extents)
        mod, params = read_model(model, shapes, options.trust, options.import_limits)
        mod = with_bounds(mod, options.bounds)
        for symbol, room in options.kv_cache.items():
            mod = with_kv_cache(mod, symbol, room)
        mod = with_sizes(mod, options.sizes)
        return mod, params


def inputs_of(mod: tvm.IRModule, params: Mapping[str, Any]) -> list[TensorInfo]:
    """The inputs of an imported module, without its weights."""
    from compiler.lowering.metadata import inputs_of as parameters_of

    return [info for info in parameters_of(mod) if info.name not in params]


def partition_module(
    mod: tvm.IRModule, params: Mapping[str, Any], options: BuildOptions, steps: Steps
) -> tvm.IRModule:
    """Let the backends of the options claim subgraphs; without backends `mod` itself."""
    from compiler.partition import Fastest, PlacementLog, partition

    if options.placement and not options.backends:
        raise InputError("--placement chooses between partitioners; name some with --backend")
    if options.placement_log and not options.placement:
        raise InputError("--placement-log keeps what --placement fastest measures; give that too")
    if not options.backends:
        return mod
    check_option_names(options)
    how = Fastest(options.target) if options.placement else None
    context = _pass_context(options) if options.placement else nullcontext()
    log = PlacementLog(options.placement_log)
    with steps.step("partition", ", ".join(options.backends)), context, log:
        return partition(mod, options.backends, params, placement=how, **options.backend_options)


def _pass_context(options: BuildOptions) -> Any:
    from compiler import PassContext

    return PassContext(
        opt_level=options.opt_level,
        disabled_pass=list(options.disabled_passes),
        config={KEY: options.precision},
    )


def check_option_names(options: BuildOptions) -> None:
    """Refuse options of backends that have the name of an argument of `partition`."""
    reserved = {"mod", "backend", "params", "placement"} & set(options.backend_options)
    if reserved:
        raise PartitionError(f"no option of a backend can be named {sorted(reserved)[0]!r}")


def build_module(
    mod: tvm.IRModule, params: Mapping[str, Any], options: BuildOptions, steps: Steps
) -> FactoryModule:
    """Build under the tuning logs and the pass context that the options ask for."""
    from compiler import auto_scheduler, autotvm, relay

    with steps.step("build", options.target), ExitStack() as contexts:
        if options.logs:
            contexts.enter_context(autotvm.apply_history_best(list(options.logs)))
        if options.auto_scheduler_logs:
            records = list(options.auto_scheduler_logs)
            contexts.enter_context(auto_scheduler.ApplyHistoryBest(records))
        contexts.enter_context(_pass_context(options))
        return relay.build(mod, options.target, options.target_host, params=params)


def show_compiled(compiled: Compiled) -> None:
    """Print the kernels, the seconds of each step and the library's size."""
    report = compiled.report
    if compiled.quantized is not None:
        from .quantize import show_layers

        show_layers(compiled.quantized)
    show(kernel_table(report), *report.notes)
    show(_seconds(compiled.seconds, report.seconds), report.sizes)


def _seconds(steps: Mapping[str, float], of_build: Mapping[str, float]) -> str:
    """The times of the steps in one line, with the parts of the build that took longest."""

    def listed(times: Mapping[str, float], least: float) -> str:
        return ", ".join(f"{name} {each:.2f}" for name, each in times.items() if each >= least)

    total = sum(steps.values())
    parts = listed(of_build, max(total * _SHOWN_SHARE, 0.005))
    line = f"{total:.2f} s: {listed(steps, 0.005)}"
    return f"{line}; of the build: {parts}" if parts else line


def kernel_table(report: Report) -> Any:
    """Every kernel with its operators and the source of its schedule."""
    return table(
        (
            "kernel",
            "operators",
            "implementation",
            "algorithm",
            "multiplies",
            "schedule from",
            "nodes",
            "calls",
            "MFLOP",
            "KB",
        ),
        [
            (
                kernel.name,
                " ".join(kernel.operators),
                kernel.implementation,
                kernel.algorithm,
                kernel.multiplies,
                kernel.source + (f" [{kernel.backend}]" if kernel.backend else ""),
                kernel.where,
                kernel.calls,
                kernel.megaflops,
                f"{kernel.bytes / 1e3:.0f}",
            )
            for kernel in report.kernels
        ],
        wide=("operators", "multiplies", "algorithm", "KB"),
        title=f"{len(report.kernels)} kernels for {report.target}, opt_level {report.opt_level}, "
        f"precision {report.precision}, "
        f"{'TOPI schedules' if report.use_topi_schedule else 'auto_scheduler records first'}",
        numbers=3,
    )


def load_plugins(paths: Iterable[Path], steps: Steps) -> None:
    """Load Python files and C++ libraries that the user names, in order, and say what they bring.

    Raises PartitionError: a file can't be loaded; names it and, of a Python file, the line.
    """
    from compiler.mxnet import library

    for path in paths:
        note_loaded(path, library.load(path, verbose=False), steps)


def note_loaded(path: Path, found: Loaded, steps: Steps) -> None:
    """Print what a file registers: partitioners with their strategies, passes, operators."""
    from compiler.backends import get_partitioner

    brought = [
        f"{name} ({', '.join(strategy.name for strategy in get_partitioner(name).strategies)})"
        for name in found
    ]
    brought += [f"pass {name}" for name in found.passes]
    brought += [f"operator {name}" for name in found.operators]
    steps.note(f"{path} registers {', '.join(brought) or 'nothing'}")
