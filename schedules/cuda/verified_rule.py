"""A schedule rule whose results are checked before anyone uses them."""

from __future__ import annotations

import logging

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from ..anchor import block_names
from .verify import has_thread_bindings, launches_in_loops, limit_violation

_logger = logging.getLogger("baton.schedules")
# How TVM's own rules say that a function is not theirs, beside returning None.
TVM_REFUSALS = (AssertionError, ValueError)


class Checked(ScheduleRule):
    """Takes what `rule` takes, unless the rule refuses or its kernels break the target's limits.

    The next rule in the list then gets the unchanged function. A schedule primitive that does not
    apply (`ScheduleError`) is a refusal, and so are the `refusals`; they are logged at debug level.
    Any other error is a defect of the rule or of TVM: the next rule still gets the function, and
    a warning names the error and the kernel's blocks.

    `name`: what a build report prints for kernels that this rule scheduled.
    """

    def __init__(
        self, name: str, rule: ScheduleRule, refusals: tuple[type[Exception], ...] = ()
    ) -> None:
        self.name = name
        self.rule = rule
        self._refusals = (s_tir.ScheduleError, *refusals)

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        """Schedule a whole fused function for `target`; None when another rule must."""
        if not isinstance(func, tirx.PrimFunc) or target.kind.name != "cuda":
            return None
        try:
            with target:
                schedule = self.rule.apply(func, target, tunable)
            reason = None if schedule is None else _objection(func, schedule, target)
        except MemoryError:
            raise
        except self._refusals as error:
            _logger.debug("%s refuses %s: %s", self.name, block_names(func), error)
            return None
        except Exception as error:  # see the class's docstring
            _logger.warning(
                "%s fails on the function with blocks %s, which another rule gets: %s: %s",
                self.name,
                block_names(func),
                type(error).__name__,
                (str(error).strip().splitlines() or [""])[-1],
            )
            return None
        if reason is not None:
            _logger.debug("%s is not used for %s: %s", self.name, block_names(func), reason)
            return None
        return schedule


def _objection(func: tirx.PrimFunc, schedule: s_tir.Schedule, target: Target) -> str | None:
    """Why the scheduled function can't be used. Raises LoweringError: TVM can't lower it."""
    scheduled = schedule.mod["main"]
    reason = limit_violation(scheduled, target)
    if launches_in_loops(scheduled) and not has_thread_bindings(func):
        return "it makes the host launch a kernel in a loop"
    return reason
