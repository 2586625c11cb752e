"""Search policies and cost models by Ansor's names: what to ask of MetaSchedule's search."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...records.auto_scheduler.record import PathLike

if TYPE_CHECKING:
    from ..task import SearchTask

logger = logging.getLogger("baton.auto_scheduler")


class RandomModel:
    """No model: candidates are as good as they are rare."""

    kind = "random"


class XGBModel:
    """Gradient-boosted trees, trained on what the search measures.

    The parameters of Ansor's model are accepted; MetaSchedule's has its own.
    """

    kind = "xgb"

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: PathLike | None = None,
        adaptive_training: bool = False,
    ) -> None:
        self.seed = seed
        self.log_file: PathLike | None = None

    def update_from_file(self, file_name: PathLike, n_lines: int | None = None) -> None:
        """Learn from a log: the search starts from its measurements, as with
        `PreloadMeasuredStates`.

        Raises
        ------
        RecordError
            `n_lines` is given: the log counts as a whole.
        """
        if n_lines is not None:
            raise RecordError(f"{file_name}: n_lines={n_lines}; cut the log to the lines you want")
        self.log_file = file_name


class PreloadMeasuredStates:
    """Go on from a log: what it has is not measured again."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = filename


class PreloadCustomSketchRule:
    """A rule by which Ansor made sketches of some stages; MetaSchedule's rules schedule these.

    Its functions are not called: they work on Ansor's states.
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self, meet_condition_func: Any, apply_func: Any, rule_name: str = "CustomSketchRule"
    ) -> None:
        logger.warning(
            "sketch rule %s is not applied: schedules come from MetaSchedule's rules; "
            "register a tvm.s_tir.meta_schedule.ScheduleRule to add one",
            rule_name,
        )


class SketchPolicy:
    """An evolutionary search guided by a cost model.

    Parameters
    ----------
    task : SearchTask
    program_cost_model : XGBModel or RandomModel, optional
        XGBoost by default.
    params : dict, optional
        Of the evolutionary search, by Ansor's names; those that MetaSchedule has none for have no
        effect.
    seed : int, optional
    init_search_callbacks : sequence of PreloadMeasuredStates or PreloadCustomSketchRule, optional
    """

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: Any = None,
        params: dict[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.task = task
        model = program_cost_model or XGBModel()
        self.cost_model = model.kind
        self.seed = seed
        self.params = dict(params or {})
        self.verbose = verbose
        learnt = [model.log_file] if isinstance(model, XGBModel) and model.log_file else []
        callbacks = init_search_callbacks or ()
        preloaded = [c.filename for c in callbacks if isinstance(c, PreloadMeasuredStates)]
        self.log_file = next(iter([*preloaded, *learnt]), None)
