"""What it costs to convert an activation from one blocked layout to another."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from schedules import rules
from schedules.config import ConfigEntity, InstantiationError

from ...measure.candidate import MeasureResult
from ...records.autotvm.record import MeasureInput
from ...records.log_target import log_target
from ...records.untrusted_json import mean_seconds
from ..measure import measure_batch
from ..task import Task, TaskCandidate, get_config, template

TASK = "layout_transform"
PLAIN = 1


@dataclass(frozen=True)
class Transform:
    """(N, C, H, W) from channel blocks of one size to another; 1 is the plain layout."""

    shape: tuple[int, ...]
    dtype: str
    before: int
    after: int

    @property
    def elements(self) -> int:
        n, c, h, w = self.shape
        return n * c * h * w

    def args(self) -> tuple[Any, ...]:
        """Arguments of AutoTVM's task `layout_transform`."""
        return (
            ("TENSOR", _blocked(self.shape, self.before), self.dtype),
            _layout(self.before),
            _layout(self.after),
        )

    @staticmethod
    def from_args(args: tuple) -> Transform | None:
        """The inverse of `args`; None for layouts other than NCHW and NCHW[b]c."""
        (_, shape, dtype), before, after = args
        blocks = [re.fullmatch(r"NCHW(?:(\d+)c)?", str(layout)) for layout in (before, after)]
        if None in blocks:
            return None
        one, other = (int(block[1] or PLAIN) for block in blocks)  # type: ignore[index]
        n, c, h, w, *lanes = shape
        return Transform((n, c * (lanes[0] if lanes else 1), h, w), str(dtype), one, other)


def _layout(block: int) -> str:
    return "NCHW" if block == PLAIN else f"NCHW{block}c"


def _blocked(shape: tuple[int, ...], block: int) -> tuple[int, ...]:
    n, c, h, w = shape
    return shape if block == PLAIN else (n, -(-c // block), h, w, block)


@template(TASK)
def layout_transform(data: tuple, src_layout: str, dst_layout: str) -> tuple[Any, list[Any]]:
    """The kernel that a build makes of a conversion, as AutoTVM's task, which has no knobs."""
    t = Transform.from_args((data, src_layout, dst_layout))
    if t is None:
        raise InstantiationError(
            f"{TASK} from {src_layout} to {dst_layout}: the graph tuner converts NCHW and NCHW[b]c"
        )
    get_config().add_flop(t.elements)
    source = te.placeholder(_blocked(t.shape, t.before), t.dtype, name="data")
    out = te.compute(_blocked(t.shape, t.after), _reader(t, source), name=TASK)
    scheduled = rules.schedule(te.create_prim_func([source, out]), Target.current())
    if scheduled is None:
        raise InstantiationError(f"no rule schedules {t}")
    return scheduled.func, [source, out]


def _reader(t: Transform, data: te.Tensor) -> Callable[..., Any]:
    channels = t.shape[1]

    def element(n: Any, chunk: Any, y: Any, x: Any, *lane: Any) -> Any:
        c = chunk * t.after + lane[0] if lane else chunk
        source: tuple[Any, ...] = (n, c, y, x)
        if t.before != PLAIN:
            source = (n, c // t.before, y, x, c % t.before)
        if not lane or channels % t.after == 0:
            return data[source]
        return tirx.if_then_else(c < channels, data[source], tirx.const(0, t.dtype))

    return element


class TransformCosts:
    """Seconds of conversions: measured, or inferred from the time of one element.

    Attributes
    ----------
    seconds : dict of Transform to float
    records : list of (MeasureInput, MeasureResult)
        The measurements, as AutoTVM's `layout_transform_perf_records`.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.seconds: dict[Transform, float] = {}
        self.records: list[tuple[MeasureInput, Any]] = []

    def load(self, records: Iterable[tuple[MeasureInput, Any]]) -> None:
        """Take records of the task `layout_transform`."""
        for inp, result in records:
            transform = Transform.from_args(inp.task.args) if inp.task.name == TASK else None
            seconds = mean_seconds(result.costs, result.error_no)
            if transform is not None and seconds < math.inf:
                self._note(transform, inp, result)

    def measure(self, transforms: Iterable[Transform], option: dict[str, Any]) -> None:
        """Measure the conversions that are not known yet."""
        missing = [t for t in dict.fromkeys(transforms) if t not in self.seconds]
        config = ConfigEntity(index=0)
        tasks = [Task(TASK, transform.args(), self.target) for transform in missing]
        results = measure_batch(option, [TaskCandidate(task, config) for task in tasks])
        for transform, task, result in zip(missing, tasks, results):
            inp = MeasureInput(log_target(self.target), task.logged, config, 0)
            if result.is_right:
                self._note(transform, inp, result)

    def _note(self, transform: Transform, inp: MeasureInput, result: MeasureResult) -> None:
        self.seconds[transform] = sum(result.costs) / len(result.costs)
        self.records.append((inp, result))

    def of(self, transform: Transform) -> float:
        """Seconds of a conversion; 0 between equal layouts."""
        if transform.before == transform.after:
            return 0.0
        if transform in self.seconds:
            return self.seconds[transform]
        return transform.elements * self._per_element()

    def _per_element(self) -> float:
        elements = sum(transform.elements for transform in self.seconds)
        return sum(self.seconds.values()) / elements if elements else 0.0
