"""`ProgramMeasurer`: builds and runs schedules, and tells callbacks of their times."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from .options import TuningOptions

if TYPE_CHECKING:
    from ...records.measure_pair import MeasureInput, MeasureResult

logger = logging.getLogger("baton.auto_scheduler")

MAX_CONTINUOUS_ERROR = 150


class ProgramMeasurer:
    """Measures schedules.

    `callbacks`: called with lists of records, like `RecordToFile`. `verbose`: no effect.
    `max_continuous_error`: give up after this many consecutive failures; 150 if it is not positive.
    """

    def __init__(
        self,
        builder: Any,
        runner: Any,
        callbacks: Sequence[Any] | None = None,
        verbose: int = 1,
        max_continuous_error: int = -1,
    ) -> None:
        self.options = TuningOptions(
            builder=builder, runner=runner, measure_callbacks=callbacks, verbose=verbose
        )
        self.max_continuous_error = max_continuous_error
        self._failed = 0

    @staticmethod
    def of(options: TuningOptions) -> ProgramMeasurer:
        """One with the builder, the runner and the callbacks of a search."""
        return ProgramMeasurer(
            options.builder, options.runner, options.measure_callbacks, options.verbose
        )

    def measure(self, inputs: Sequence[MeasureInput], policy: Any = None) -> list[MeasureResult]:
        """Build and run schedules of whole tasks; failures are part of the results.

        `policy`: passed to the callbacks.
        Raises RecordError: too many failed in a row.
        """
        if not inputs:
            return []
        options = self.options
        results = options.runner.run(inputs, options.builder.build(inputs))
        pairs = zip(inputs, results, strict=True)
        options.report([inp.measured(result) for inp, result in pairs], policy)
        for result in results:
            self._failed = self._failed + 1 if result.error_no else 0
            if result.error_no:
                logger.info("a schedule fails: %s", result.error_msg)
        most = self.max_continuous_error
        if self._failed >= (most if most > 0 else MAX_CONTINUOUS_ERROR):
            raise RecordError(
                f"{self._failed} schedules failed in a row, the last one: {results[-1].error_msg}"
            )
        return list(results)
