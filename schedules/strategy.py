"""Which implementations an operator has on a target, and in which order they are preferred.

The selection rule is that of TVM 0.18's op strategies: among the implementations for which a
tuning record exists, the one with the smallest recorded cost wins, whatever its priority level;
without any record the one with the highest priority level does. Of one level, the cheapest does:
an implementation says how many cycles it takes, and must be clearly below the operator's default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.target import Target

from .anchor import ScheduleRule, register_anchor_rule
from .config import ConfigEntity

DIRECT = "direct"
"""The algorithm that multiplies and adds what the operator's definition does."""

MIN_GAIN = 0.945
"""Share of the default's cycles below which another implementation must be: estimates err."""

PREDICTED_SECONDS_ATTR = "baton.predicted_seconds"
"""Attribute of scheduled functions: how long a described device takes, launches included."""

Query = Callable[[Target, tuple], ConfigEntity | None]
"""Looks up a tuning record: (target, AutoTVM workload tuple) -> config, or None."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator.

    Its functions get the AutoTVM workload and the target, unless a comment says otherwise.
    """

    name: str  # name of the AutoTVM task, also the `schedule_rule` on the anchor block
    plevel: int  # priority level: highest wins when no record decides
    supports: Callable[[Any, Target], bool]
    # The knobs without a record. `cost` stays infinite.
    fallback: Callable[[Any, Target], ConfigEntity]
    # (workload, config, *tensors) -> tensor: TE compute over operands in the config's layouts; its
    # anchor stage carries `anchor_attrs(...)`
    compute: Callable[..., Any]
    # (workload) -> AutoTVM workload arguments; None if the implementation is not a template
    task_args: Callable[[Any], tuple] | None = None
    # (ops, weight, config, input block) -> array: rearranges the weights as `compute` wants them;
    # `ops` is numpy, or has numpy's `pad`, `reshape` and `transpose`
    pack: Callable[..., Any] | None = None
    # How long one core takes, for implementations that are compared; all of an operator's
    # count with the same rates of the machine
    cycles: Callable[[Any, Target], float] | None = None
    # Predicted kernel time on the device; kernels keep it as `PREDICTED_SECONDS_ATTR`
    seconds: Callable[[Any, Target], float] | None = None
    is_default: bool = False  # whether the others must be clearly cheaper
    # Chosen where a record says so and never without one: what the build does with an
    # operator that has no implementation is the better fallback
    only_recorded: bool = False


_STRATEGIES: dict[tuple[str, str], list[Implementation]] = {}


def register(
    op: str, target_key: str, *fields: Any, rule: ScheduleRule | None = None, **options: Any
) -> Implementation:
    """Add an implementation of `op` for targets that have `target_key` among their keys.

    `fields`, `options`: those of `Implementation`. `rule`: schedules the functions whose anchor
    block names the implementation; see `register_anchor_rule`.
    """
    implementation = Implementation(*fields, **options)
    _STRATEGIES.setdefault((op, target_key), []).append(implementation)
    if rule is not None:
        register_anchor_rule(implementation.name, rule)
    return implementation


def all_registered() -> list[tuple[Implementation, ...]]:
    """The implementations of every operator and target key."""
    return [tuple(known) for known in _STRATEGIES.values()]


def operator_of(name: str) -> str | None:
    """The operator that an implementation of this name computes, on whatever target."""
    for (op, _), known in _STRATEGIES.items():
        if any(implementation.name == name for implementation in known):
            return op
    return None


def registered(op: str, target: Target) -> Sequence[Implementation]:
    """Implementations of `op` for the first key of the target that has any."""
    for key in target.keys:
        found = _STRATEGIES.get((op, str(key)))
        if found:
            return tuple(found)
    return ()


def implementations(op: str, workload: Any, target: Target) -> Sequence[Implementation]:
    """Implementations that take the workload and are worth it: by priority level, then by cost."""
    valid = [impl for impl in registered(op, target) if impl.supports(workload, target)]
    cycles = {impl.name: impl.cycles(workload, target) for impl in valid if impl.cycles}
    default = min((cycles[impl.name] for impl in valid if impl.is_default), default=math.inf)
    worth = [
        impl for impl in valid if impl.is_default or cycles.get(impl.name, 0) < MIN_GAIN * default
    ]
    return sorted(worth, key=lambda i: (-i.plevel, i.is_default, cycles.get(i.name, 0)))


def select(
    op: str,
    workload: Any,
    target: Target,
    query: Query | None = None,
    disabled: Collection[str] = (),
) -> tuple[Implementation, ConfigEntity] | None:
    """Choose an implementation and its config; None when the operator has none here.

    Parameters
    ----------
    op : str
        Operator name without the `relax.` prefix, e.g. "nn.conv2d".
    workload
        Description of the call; its class belongs to the operator family.
    query
        Looks up tuning records in the active dispatch contexts.
    disabled
        Names of implementations that must not be chosen.

    Raises
    ------
    InstantiationError
        The record that was found lacks a knob, or has an impossible one.
    """
    candidates = [
        impl for impl in implementations(op, workload, target) if impl.name not in disabled
    ]
    if not candidates:
        return None
    recorded: list[tuple[Implementation, ConfigEntity]] = []
    if query is not None:
        for impl in candidates:
            if impl.task_args is None:
                continue
            config = query(target, (impl.name, *impl.task_args(workload)))
            if config is not None:
                recorded.append((impl, config))
    if recorded:
        impl, config = min(recorded, key=lambda entry: rank(entry[1]))
        config.require_knobs_of(impl.fallback(workload, target))
        return impl, config
    unasked = [impl for impl in candidates if not impl.only_recorded]
    return (unasked[0], unasked[0].fallback(workload, target)) if unasked else None


def rank(config: ConfigEntity) -> tuple[int, float]:
    """Sort key of records: the innermost context first, whatever times an outer log promises."""
    return config.level, config.cost


def anchor_attrs(
    implementation: str, config: ConfigEntity, algorithm: str = DIRECT
) -> dict[str, str]:
    """Block attributes that carry the schedule choice, and the report's `algorithm`."""
    return {
        "schedule_rule": implementation,
        "schedule_config": config.dumps(),
        "schedule_source": config.source,
        "schedule_algorithm": algorithm,
    }
