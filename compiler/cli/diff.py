"""`baton diff`: the first operator where two builds or engines part, and the pass that causes it.

Outputs in the middle of a network change what is fused. So the search adds those of one cut at a
time, and keeps the model's outputs: where they agree, the cut has removed the difference.
"""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import typer

from compiler.errors import InputError
from compiler.relay.frontend.onnx.node_names import named_nodes
from compiler.relay.frontend.onnx.node_order import names_read
from compiler.support.tempdir import TemporaryFolder

from .bench import OWN
from .compile import BuildOptions, build_module, import_model, inputs_of, partition_module
from .console import Steps, show, table
from .engines import ENGINES, Engine, measure
from .models import error_of, random_inputs, read_inputs
from .options import Commands, builds
from .profile import profile_library
from .quantize_onnx import read_onnx, with_outputs
from .run import require_inputs, run_library
from .tuned_network import network_gain

_OPTIONS = (
    *("target", "target_host", "opt_level", "log", "auto_scheduler_log", "disable_pass"),
    *("precision", "backend", "placement", "placement_log", "option"),
)
_REPEATS, _NOISE = 20, 0.2  # inferences of a profile; a share of the time that is no difference
_COLUMNS = ("operator", "tensor", "type", "differs", "error", "tolerance")
_quiet = Steps(quiet=True)


@dataclass(frozen=True)
class Side:
    """A build of Baton, or another engine."""

    spec: str
    engine: str
    build: BuildOptions

    @classmethod
    def parse(cls, spec: str, shared: BuildOptions) -> Side:
        """ "baton:precision=fast,disable=FastMath" -> a side. Raises InputError: malformed."""
        engine, _, text = spec.partition(":")
        known = [name for name in ENGINES if name != "relax"]
        if engine not in known or (text and engine != OWN):
            raise InputError(f"{spec!r} is none of {', '.join(known)} or baton:OPTION=VALUE")
        if importlib.util.find_spec(ENGINES[engine].module) is None:
            raise InputError(f"{engine} is not installed: pip install 'baton-tvm[bench]'")
        made, commands = [shared], Commands()

        @commands.command(context_settings={})
        @builds(*_OPTIONS)
        def keep(*, build: BuildOptions) -> None:
            shapes, extents = shared.shapes, shared.extents
            made.append(replace(build, shapes=shapes, extents=extents, plugins=shared.plugins))

        words = []
        for word in re.split(r",(?=\w+=)", text) if text else ():
            name, _, value = word.replace("disable=", "disable-pass=", 1).partition("=")
            words.append(f"--{name.replace('_', '-')}={value}")
        try:
            typer.main.get_command(commands).main(words, standalone_mode=False)
        except Exception as error:  # typer's own or click's
            raise InputError(f"{spec!r}: {getattr(error, 'message', error)}") from error
        return cls(spec, engine, made[-1])

    def module(self, model: Path, skipped: Collection[str] = ()) -> tuple[Any, dict[str, Any]]:
        """The partitioned module without some subgraphs, and its weights."""
        from compiler.lowering.offloaded_functions import inline_into_callers

        mod, params = import_model(model, self.build, _quiet)
        mod = partition_module(mod, params, self.build, _quiet)
        return inline_into_callers(mod, set(skipped)), params

    def library(self, model: Path, skipped: Collection[str]) -> Any:
        """Build without some passes and subgraphs."""
        options = replace(self.build, disabled_passes=(*self.build.disabled_passes, *skipped))
        return build_module(*self.module(model, skipped), options, _quiet)

    def load(self, model: Path, inputs: Mapping[str, Any]) -> Engine:
        """An engine other than Baton after its first run."""
        threads = int(os.environ.get("TVM_NUM_THREADS", "1"))
        engine = ENGINES[self.engine](str(model), inputs, threads, "cpu")
        engine.run()
        return engine

    def run(self, model: Path, inputs: Mapping[str, Any], skipped: Collection[str]) -> list[Any]:
        """Outputs. Raises InputError: the model does not build, load or run."""
        try:
            if self.engine == OWN:
                return run_library(self.library(model, skipped), inputs, 0, _quiet)[0]
            return [np.array(each) for each in self.load(model, inputs).outputs()]
        except Exception as error:  # engines raise anything
            raise InputError(f"{self.spec} can't run the model: {error}") from error


class Difference:
    """Compare two builds or engines on an ONNX model.

    `a`, `b`: "baton", "baton:OPTION=VALUE,..." with options of `baton compile`, or an engine.
    `inputs`: `.npy` files by name. `seed`: of random values for the others. `by`: "values" or
    "time". `bisect`: also find the pass or the region that causes it. `fuel`: how many of
    `fuels`, the optional passes and regions, builds have. `tolerance`: relative to a row's largest
    magnitude; integers are equal. `build`: shapes, extents and plugins.

    `rows`: the compared tensors, or times. `first`: the first operator that differs; several if
    they differ only when compiled together. `off`: errors of `first` against float64 on a side's
    own inputs. `cause`: the pass or the region. `findings`: all of it in sentences.

    Raises InputError: an argument is invalid, or a side can't run the model. Raises FrontendError:
    the model can't be read.
    """

    def __init__(
        self,
        model: str | Path,
        a: str,
        b: str,
        inputs: Mapping[str, Path] | None = None,
        seed: int | None = None,
        by: str = "values",
        bisect: bool = False,
        fuel: int | None = None,
        tolerance: float = 1e-4,
        build: BuildOptions | None = None,
        steps: Steps | None = None,
    ) -> None:
        from compiler.lowering.pipeline import optional_passes
        from compiler.partition import subgraphs

        build, self._steps, self.tolerance = build or BuildOptions(), steps or _quiet, tolerance
        model = Path(model)
        self.sides, given = [Side.parse(each, build) for each in (a, b)], read_inputs(inputs or {})
        if by not in ("values", "time"):
            raise InputError(f"--by {by}: it can be values or time")
        if by == "time" and bisect and {OWN} != {side.engine for side in self.sides}:
            raise InputError("--by time --bisect compares builds of baton; engines have no passes")
        self._proto = read_onnx(model)
        infos = inputs_of(*import_model(model, build, _quiet))
        require_inputs(infos, given, seed is not None)
        infos = [info for info in infos if info.name not in given]
        self.inputs = {**random_inputs(infos, seed or 0, build.extents), **given}
        self.outputs = [each.name for each in self._proto.graph.output]
        self._nodes, varying = [], set(self.inputs)
        for node, name in named_nodes(self._proto.graph):
            if not varying.isdisjoint(names_read(node)):
                varying.update(filter(None, node.output))
                self._nodes.append((node, name))
        self._makers = {key: name for node, name in self._nodes for key in node.output if key}
        partitioned = [each for each in self.sides if each.build.backends]
        regions = [each.name for side in partitioned for each in subgraphs(side.module(model)[0])]
        self.fuels = [*optional_passes(), *regions]
        self.fuel = len(self.fuels) if fuel is None else fuel
        self.rows: list[dict[str, Any]] = []
        self.first, self.cause, self.findings = (list[str]() for _ in range(3))
        self.off: dict[str, float] = {}
        self._known: dict[Any, list[np.ndarray]] = {}
        self._rows: dict[str, dict[str, Any]] = {}
        with TemporaryFolder("diff") as folder:
            self._path = Path(folder) / "model.onnx"
            (self._by_values if by == "values" else self._by_time)(bisect)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        names = ("rows", "first", "off", "cause", "findings")
        return {name: getattr(self, name) for name in names}

    def show(self) -> None:
        """Print the rows and the findings."""
        rows = [
            [f"{v:.3g}" if isinstance(v, float) else v for v in row.values()] for row in self.rows
        ]
        show(table([*self.rows[0]] if rows else [], rows, numbers=2), *self.findings)

    def _by_values(self, bisect: bool) -> None:
        wanted = self._compare(self.outputs, self.fuel)
        if not wanted:  # something inside may differ
            inner = self._compare(self._makers, self.fuel)
            wanted = next(([name] for name in inner if not self._is_explained(name)), [])
        names, cuts = self._cuts(wanted)

        def part(at: int) -> bool | None:
            """Whether the sides differ in a cut; None where the cut removes the difference."""
            found = self._differing([*cuts[at], *wanted], self.fuel)
            return not set(cuts[at]).isdisjoint(found) if found else None

        if wanted:
            low, high = first_true(0, len(names), part)
            self.first = names[low:high]
            only = " only when compiled without outputs between them" if high > low + 1 else ""
            self.findings.append(f"first difference: {', '.join(self.first)}{only}")
            made = [name for name in cuts[high] if name not in cuts[low]]
            probes = ([*cuts[low], *wanted], [*cuts[high], *wanted])
            self.off = self._errors(cuts[low], made, *probes)
            if self.off:
                text = ", ".join(f"{spec} {error:.1e}" for spec, error in self.off.items())
                both = max(self.off.values()) <= self.tolerance
                text += ": both are right, and amplify a difference of their inputs" if both else ""
                self.findings.append(f"errors against float64 on the same inputs: {text}")
            if bisect:
                self._bisect(lambda fuel: self._differing(wanted, fuel))
        else:
            self.findings.append(f"all {len(self._rows)} tensors agree")
        self.rows = [self._rows[name] for name in self._makers if name in self._rows]

    def _cuts(self, wanted: Sequence[str]) -> tuple[list[str], list[list[str]]]:
        """Nodes that some tensors depend on, and the tensors that live before and after each."""
        live, names, cuts = set(wanted), [], [list(wanted)]
        for node, name in reversed(self._nodes):
            if not live.isdisjoint(node.output):
                live = live.difference(node.output) | self._makers.keys() & names_read(node)
                names.append(name)
                cuts.append(sorted(live))
        return names[::-1], cuts[::-1]

    def _values(self, number: int, tensors: Collection[str], fuel: int) -> dict[str, np.ndarray]:
        """The model's outputs and further tensors of a side. Raises InputError: it can't run."""
        side, names = self.sides[number], [*dict.fromkeys([*self.outputs, *tensors])]
        key = (number, *names, fuel if side.engine == OWN else self.fuel)
        if key not in self._known:
            self._steps.note(f"{side.spec}: {len(names)} outputs, {fuel} passes and regions")
            self._path.write_bytes(with_outputs(self._proto, names).SerializeToString())
            self._known[key] = side.run(self._path, self.inputs, self.fuels[fuel:])
        return dict(zip(names, self._known[key]))

    def _compare(self, tensors: Collection[str], fuel: int) -> list[str]:
        """Return the tensors that differ. Raises InputError: a side can't run."""
        one, two = (self._values(number, tensors, fuel) for number in (0, 1))
        found = []
        for name in tensors:
            a, b = one[name], two[name]
            error, allowed = error_of(a, b), 0.0 if b.dtype.kind in "iub" else self.tolerance
            found += [name] if error > allowed else []
            if fuel == self.fuel:
                words = (self._makers.get(name, ""), name, f"{b.dtype}{list(b.shape)}")
                row = zip(_COLUMNS, (*words, error > allowed, error, allowed))
                self._rows[name] = dict(row)
        return found

    def _differing(self, tensors: Sequence[str], fuel: int) -> list[str] | None:
        try:
            return self._compare(tensors, fuel)
        except InputError:  # of fewer passes, or for the type of a tensor
            return None

    def _is_explained(self, name: str) -> bool:
        """Whether both sides computed an inner tensor right from inputs that differ."""
        node = next(node for node, _ in self._nodes if name in node.output)
        before = [*(self._makers.keys() & names_read(node))]
        errors = self._errors(before, [name], self._makers).values()
        self._rows[name]["differs"] = not errors or max(errors) > self.tolerance
        return not self._rows[name]["differs"]

    def _errors(
        self, before: Sequence[str], made: Sequence[str], *probes: Collection[str]
    ) -> dict[str, float]:
        """Errors of tensors against float64 on a side's own inputs `before`; {} if unknown.

        `probes`: the further outputs of the runs that have them.
        """
        from onnx.reference import ReferenceEvaluator
        from onnx.utils import Extractor

        whole, found = with_outputs(self._proto, [*before, *made]), {}
        for number, side in enumerate(self.sides):
            values: dict[str, np.ndarray] = {}
            for probe in probes:
                values |= self._values(number, probe, self.fuel)
            known = self.inputs | {name: values[name] for name in before}
            try:
                part = Extractor(whole).extract_model([*known], list(made))
                for each in part.graph.initializer:
                    array = _wide(onnx.numpy_helper.to_array(each))
                    each.CopyFrom(onnx.numpy_helper.from_array(array, each.name))
                right = ReferenceEvaluator(part).run(None, {k: _wide(v) for k, v in known.items()})
                errors = [error_of(_wide(values[name]), r) for name, r in zip(made, right)]
            except Exception:  # of the evaluator, for an operator or a type
                return {}
            found[side.spec] = max(errors, default=0.0)
        return found

    def _bisect(self, part: Callable[[int], Any]) -> None:
        """Find the pass or the region from which on the sides part."""
        if part(0) or not part(self.fuel):
            self.findings.append("no cause: no optional pass or region makes the sides part")
            return
        low, high = first_true(0, self.fuel, part)
        self.cause = self.fuels[low:high]
        self.findings.append(f"cause: {', '.join(self.cause)} (--fuel {high}, not {low})")

    def _by_time(self, bisect: bool) -> None:
        """Compare the times of operators that a kernel of either side computes together."""
        self._path.write_bytes(self._proto.SerializeToString())
        sides = [self._times(side) for side in self.sides]
        groups: list[set[str]] = []
        for nodes in (nodes for side in sides for nodes, _ in side):
            joined = nodes.union(*(group for group in groups if group & nodes))
            groups = [*(group for group in groups if not group & nodes), joined]
        for group in groups:
            a, b = (sum(ms for nodes, ms in side if nodes & group) for side in sides)
            row = {"operators": ", ".join(sorted(group)), "a, ms": a, "b, ms": b}
            self.rows.append({**row, "difference": a - b})
        self.rows.sort(key=lambda row: -abs(row["difference"]))
        if bisect:
            self._bisect(self._times_part)

    def _times(self, side: Side) -> list[tuple[set[str], float]]:
        """Nodes and milliseconds of each kernel; an engine counts as one."""
        if side.engine != OWN:
            times = measure(side.load(self._path, self.inputs), 0.5, _REPEATS)
            return [({*self._makers.values()}, statistics.median(times))]
        library = side.library(self._path, self.fuels[self.fuel :])
        kernels = profile_library(library, self.inputs, _REPEATS, side.spec).kernels
        return [({*each.nodes} or {each.name}, each.milliseconds) for each in kernels]

    def _times_part(self, fuel: int) -> bool:
        """Whether the times of both sides differ by more than the noise."""
        one, two = (side.library(self._path, self.fuels[fuel:]) for side in self.sides)
        return abs(network_gain(one, two, self.inputs, 5)) > _NOISE


def first_true(low: int, high: int, test: Callable[[int], Any]) -> tuple[int, int]:
    """Narrow a range to where `test` becomes true; wider than 1 where it returns None."""
    while True:
        inner = sorted(range(low + 1, high), key=lambda each: abs(2 * each - low - high))
        found = next(((at, answer) for at in inner if (answer := test(at)) is not None), None)
        if found is None:
            return low, high
        low, high = (low, found[0]) if found[1] else (found[0], high)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype("float64") if array.dtype.kind == "f" else array
