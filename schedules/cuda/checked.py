"""A schedule rule whose results are checked before anyone uses them."""

from __future__ import annotations

import logging

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from .limits import plain
from .verify import has_thread_bindings, launches_in_loops, violation

_logger = logging.getLogger(__name__)


class Checked(ScheduleRule):
    """Takes what `rule` takes, unless the rule raises or its kernels break the target's limits.

    TVM's rules, and schedule primitives on functions that nobody foresaw, raise errors of many
    kinds; the next rule in the list then gets the unchanged function.

    Attributes
    ----------
    name : str
        What a build report prints for kernels that this rule scheduled.
    """

    def __init__(self, name: str, rule: ScheduleRule):
        self.name = name
        self.rule = rule

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        """Schedule a whole fused function for `target`; None when another rule must."""
        if not isinstance(func, tirx.PrimFunc) or target.kind.name != "cuda":
            return None
        try:
            with target:
                schedule = self.rule.apply(func, plain(target), tunable)
        except Exception as error:  # see the class's docstring
            _logger.debug("%s raised %s: %s", self.name, type(error).__name__, error)
            return None
        if schedule is None:
            return None
        scheduled = schedule.mod["main"]
        reason = violation(scheduled, target)
        if launches_in_loops(scheduled) and not has_thread_bindings(func):
            reason = "it makes the host launch a kernel in a loop"
        if reason is not None:
            _logger.debug("%s is not used: %s", self.name, reason)
            return None
        return schedule
