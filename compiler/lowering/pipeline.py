"""The steps of a build, in their order; what each does is in `steps`.

`docs/architecture.md` shows the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tvm
from tvm.target import Target

from schedules.strategy import Query

from ..errors import BatonError, BuildError
from ..graph.unroll_recurrent import unroll_recurrent
from . import steps, switches
from .relax_passes.agreeing_extents import agreeing_extents
from .relax_passes.check_divisors import check_divisors
from .relax_passes.fold_gate import fold_gates
from .relax_passes.rounded_norms import round_norms
from .relax_passes.widen_half import widen_halves
from .report import Report
from .selection.schedule_source import ScheduleSource
from .simplify import simplify
from .step_errors import is_of_a_caller, reason_of
from .steps import State, on_cpus, on_gpus
from .switches import Switch


class Step(NamedTuple):
    """One step of a build.

    Attributes
    ----------
    name : str
        In `report.seconds`.
    run : callable
        Takes the state of the build and changes it.
    needs : tuple of Switch
        The step is left out where one is off.
    asks : tuple of Switch
        What else a PassContext can switch off, inside of the step.
    """

    name: str
    run: Callable[[State], None]
    needs: tuple[Switch, ...] = ()
    asks: tuple[Switch, ...] = ()


_ROUNDING = (switches.WINOGRAD, switches.STRASSEN, switches.ROUND_ROWS)
_ATTENTION = (switches.FUSE_ATTENTION,)

PREPARE = (
    Step("simplify", steps.simplify_module),
    Step("keep the cache", steps.keep_cache),
    Step("specialise", steps.specialise_sizes),
    Step("compute on integers", steps.use_integers, (switches.INTEGERS,)),
    Step("set aside recorded kernels", steps.set_aside_recorded, asks=_ROUNDING),
    Step("move strides", steps.move_all_strides, (switches.MOVE_STRIDES,)),
    Step("split the batch", steps.split_the_batch, (switches.SPLIT_BATCH,)),
    Step("check extents", on_cpus(agreeing_extents)),
    Step("check divisors", on_cpus(check_divisors)),
    Step("check indices", steps.check_all_indices),
)
SCHEDULE = (
    Step("follow samples", steps.follow_samples),
    Step(
        "multiply bfloat16",
        steps.multiply_bfloat16,
        (switches.BFLOAT16_PRODUCTS,),
        (switches.TO_BFLOAT16,),
    ),
    Step("widen halves", on_cpus(widen_halves)),
    Step("unroll recurrent layers", on_gpus(unroll_recurrent)),
    Step("multiply patches", steps.multiply_all_patches, asks=(switches.WINOGRAD,)),
    Step(
        "convert layouts",
        steps.convert_layouts,
        (switches.CONVERT_LAYOUT,),
        (switches.TO_TF32,),
    ),
    Step("fold gates", on_cpus(fold_gates), (switches.FOLD_GATE,)),
    Step("combine matrix products", steps.combine, (switches.COMBINE_MATMUL, *_ATTENTION)),
    Step("round norms", on_gpus(round_norms)),
    Step(
        "select",
        steps.select,
        asks=(switches.BLOCK_LAYOUTS, *_ATTENTION, *_ROUNDING, switches.TO_FLOAT16),
    ),
    Step("dispatch sorts", steps.dispatch_all_sorts),
    Step("legalise and fuse", steps.fuse_operators, asks=(switches.CONCAT_IN_PLACE,)),
    Step("schedule kernels", steps.schedule, asks=(switches.FAST_MATH, switches.TO_TF32)),
    Step("loop over samples", steps.loop_over_samples),
    Step("check bounds", steps.check_all_bounds),
)
LIFT = (
    Step("inline subgraphs", steps.inline),
    Step("lift weights", steps.lift_weights),
)
"""After these, the library's weights are known."""
LINK = (
    Step("place on devices", steps.place),
    Step("attach foreign code", steps.attach_foreign),
    Step("link", steps.link_library, asks=(switches.CUDA_GRAPH,)),
    Step("check replayed kernels", steps.check_replayed),
)
STEPS = (*PREPARE, *SCHEDULE, *LIFT, *LINK)


def run(
    state: State, sequence: Sequence[Step] = STEPS, lap: Callable[[str], None] = lambda _: None
) -> State:
    """Take the steps that the current PassContext allows.

    Parameters
    ----------
    lap
        Told the name of each step when it is over.

    Raises
    ------
    BuildError
        A step failed in TVM's code or Baton's. What callers' own functions raise comes as it is.
    """
    for step in sequence:
        if all(switch.on for switch in step.needs):
            try:
                step.run(state)
            except BatonError:
                raise
            except Exception as error:
                if is_of_a_caller(error):
                    raise
                raise BuildError(f"the step {step.name!r} failed: {reason_of(error)}") from error
            lap(step.name)
    return state


def scheduled(mod: tvm.IRModule, target: Target, query: Query | None = None) -> State:
    """The state after the kernels of a module were scheduled, in the calling thread's contexts.

    Parameters
    ----------
    mod : tvm.IRModule
        At operator level, its parameters bound.
    query : callable, optional
        Says which config an implementation takes for an operator of `main`.
    """
    opt_level = int(tvm.transform.PassContext.current().opt_level)
    state = State(
        simplify(mod), target, ScheduleSource.from_contexts(), Report("", True, opt_level)
    )
    if query is not None:
        bindings = [each for block in state.mod["main"].body.blocks for each in block.bindings]
        state.found.templates["main"] = {each.var.name: query for each in bindings}
    return run(state, SCHEDULE)
