"""TVM's PassContext, with the keys of Baton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from .precision import todays_arguments


class PassContext(tvm.transform.PassContext):
    """`tvm.transform.PassContext`, whose `config` may also have `"baton.precision"`.

    Raises
    ------
    BuildError
        The precision is not one of `compiler.precision.PRECISIONS`.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        required_pass, disabled_pass, config = todays_arguments(
            required_pass, disabled_pass, config
        )
        super().__init__(opt_level, required_pass, disabled_pass, instruments, config)
