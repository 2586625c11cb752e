"""`relay.data_dep_optimization`: conversions to sparse operators, which Baton does not make.

The names are there so that scripts which offer them as an option can be imported.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import UnsupportedRelayOperatorError


class _Conversion:
    """A conversion by its old name."""

    def __init__(self, name: str, instead: str) -> None:
        self.name = name
        self.instead = instead

    def convert(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raises UnsupportedRelayOperatorError: says what to do instead."""
        raise UnsupportedRelayOperatorError(
            f"relay.data_dep_optimization.{self.name}.convert is not supported: {self.instead}"
        )


_BUILD_DENSE = "build the dense model, or call relay.nn.sparse_dense with the weight's parts"

bsr_conv2d = _Conversion("bsr_conv2d", "build the dense model")
bsr_dense = _Conversion("bsr_dense", _BUILD_DENSE)
simplify_fc_transpose = _Conversion(
    "simplify_fc_transpose", "transposes of constant weights are folded by relay.build itself"
)
