"""The steps of a build, in order; `steps` implements them.

`docs/internals.md` shows the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tvm
from tvm.target import Target

from schedules.strategy import Query

from ..errors import BatonError, BuildError
from ..ir import simplify_passes
from ..ir.unroll_recurrent import unroll_recurrent
from ..support.progress import report_progress
from . import pass_flags, steps
from .graph_passes.fold_se_gate import fold_gates
from .graph_passes.fp32_accumulation import widen_halves
from .graph_passes.insert_division_checks import check_divisors
from .graph_passes.insert_shape_checks import insert_shape_checks
from .kernel_passes.elide_casts import drop_needless_casts
from .kernel_passes.pipeline import optional_cpu_passes
from .pass_flags import PassFlag
from .report import Report
from .selection.schedule_source import ScheduleSource
from .simplify import simplify
from .step_errors import is_of_a_caller, reason_of
from .steps import State, on_cpus, on_gpus


class Step(NamedTuple):
    name: str  # in `report.seconds`
    run: Callable[[State], None]  # takes the state of the build and changes it
    needs: tuple[PassFlag, ...] = ()  # the step is skipped if one is disabled
    asks: tuple[PassFlag, ...] = ()  # what else a PassContext can switch off, inside of the step
    required: bool = False  # builds without the step fail, or are not safe

    @property
    def enabled(self) -> bool:
        """Whether the current PassContext lets the step run."""
        named = self.name in tvm.transform.PassContext.current().disabled_pass
        return self.required or (all(flag.enabled for flag in self.needs) and not named)


_ROUNDING = (pass_flags.WINOGRAD, pass_flags.STRASSEN, pass_flags.ROUND_ROWS)
_ATTENTION = (pass_flags.FUSE_ATTENTION,)

PREPARE = (
    Step("simplify", steps.simplify_module, required=True),
    Step("append to kv-caches", steps.keep_cache, required=True),
    Step("specialize", steps.specialize_sizes),
    Step("rename extents", steps.rename_for_cuda, required=True),
    Step("lower to int8", steps.use_integers, (pass_flags.INTEGERS,)),
    Step("outline recorded kernels", steps.set_aside_recorded, asks=_ROUNDING),
    Step("move strides", steps.move_all_strides, (pass_flags.MOVE_STRIDES,)),
    Step("split the batch", steps.split_the_batch, (pass_flags.SPLIT_BATCH,)),
    Step("insert shape checks", on_cpus(insert_shape_checks), required=True),
    Step("insert division checks", on_cpus(check_divisors), required=True),
    Step("insert index checks", steps.check_all_indices, required=True),
)
SCHEDULE = (
    Step("batch provenance", steps.follow_samples, required=True),
    Step(
        "lower to bfloat16",
        steps.multiply_bfloat16,
        (pass_flags.BFLOAT16_PRODUCTS,),
        (pass_flags.TO_BFLOAT16,),
    ),
    Step("accumulate in float32", on_cpus(widen_halves)),
    Step("unroll recurrent layers", on_gpus(unroll_recurrent)),
    Step("lower dynamic convolutions", steps.multiply_all_patches, asks=(pass_flags.WINOGRAD,)),
    Step(
        "convert layouts",
        steps.convert_layouts,
        (pass_flags.CONVERT_LAYOUT,),
        (pass_flags.TO_TF32,),
    ),
    Step("fold channel gates", on_cpus(fold_gates), (pass_flags.FOLD_GATE,)),
    Step("combine matmuls", steps.combine, (pass_flags.COMBINE_MATMUL, *_ATTENTION)),
    Step(
        "select",
        steps.select,
        asks=(pass_flags.BLOCK_LAYOUTS, *_ATTENTION, *_ROUNDING, pass_flags.TO_FLOAT16),
    ),
    Step("dispatch sorts", steps.dispatch_all_sorts, required=True),
    Step("legalize and fuse", steps.fuse_operators, (), (pass_flags.CONCAT_IN_PLACE,), True),
    Step("merge row kernels", steps.merge_rows),
    Step("schedule kernels", steps.schedule, asks=(pass_flags.FAST_MATH, pass_flags.TO_TF32)),
    Step("loop over the batch", steps.loop_over_samples, required=True),
    Step("check bounds", steps.check_all_bounds, required=True),
)
LIFT = (Step("inline subgraphs", steps.inline_offloaded), Step("lift weights", steps.lift_weights))
"""After these, the library's weights are known."""
LINK = (
    Step("place on devices", steps.place_on_devices),
    Step("attach external code", steps.attach_foreign),
    Step("link", steps.link_library, asks=(pass_flags.CUDA_GRAPH,)),
    Step("check replayed kernels", steps.check_replayed),
)
STEPS = (*PREPARE, *SCHEDULE, *LIFT, *LINK)


def optional_passes() -> list[str]:
    """Names for `disabled_pass` that a build can do without, each after those that it relies on.

    A flag that several steps ask follows the last of them.
    """
    first = (drop_needless_casts, *optional_cpu_passes(), *simplify_passes())
    names = [str(each.info.name) for each in first]
    for step in (*PREPARE, *SCHEDULE):
        names += [] if step.required else [step.needs[0].name if step.needs else step.name]
        names += [flag.name for flag in step.asks]
    return list(dict.fromkeys(reversed(names)))[::-1]


def run(
    state: State, sequence: Sequence[Step] = STEPS, lap: Callable[[str], None] = lambda _: None
) -> State:
    """Run the steps that the current PassContext enables; `lap` gets each step's name at its end.

    Raises BuildError: a step failed in TVM or Baton. Errors of the caller's functions pass
    unchanged.
    """
    for step in sequence:
        if step.enabled:
            report_progress(step.name)
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
    """State of a bound operator-level module after scheduling; `query` gives configs for `main`."""
    opt_level = int(tvm.transform.PassContext.current().opt_level)
    state = State(
        simplify(mod), target, ScheduleSource.from_contexts(), Report("", True, opt_level)
    )
    if query is not None:
        bindings = [each for block in state.mod["main"].body.blocks for each in block.bindings]
        state.found.templates["main"] = {each.var.name: query for each in bindings}
    return run(state, SCHEDULE)
