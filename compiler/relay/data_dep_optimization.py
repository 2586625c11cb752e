"""`relay.data_dep_optimization`: conversions that depend on the values of the parameters.

Those to sparse operators are not made; their names are there so that scripts which offer them
as an option can be imported.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import tvm
from tvm import relax

from ..errors import UnsupportedRelayOperatorError
from .nested_expressions import nested, post_order
from .transform.build import is_op
from .transform.parameters import SimplifyFCTranspose, is_transposed_weight


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


class simplify_fc_transpose:
    """Dense layers over transposed weights, by the weights' values transposed."""

    @staticmethod
    def convert(
        func: relax.Function, params: dict[str, Any]
    ) -> tuple[relax.Function, dict[str, Any]]:
        """dense(x, transpose(w)) as dense(x, w') for all weights w in `params`.

        Returns
        -------
        The function, and the parameters with w' in the place of w.
        """
        function = tvm.IRModule({"main": func.without_attr("global_symbol")})
        names = sorted(
            str(node.args[1].args[0].name)
            for node in post_order(nested(func))
            if is_op(node, "nn.dense")
            and is_transposed_weight(node.args[1])
            and str(node.args[1].args[0].name) in params
        )
        made = SimplifyFCTranspose(names)(function)["main"]
        turned = {
            name: tvm.runtime.tensor(np.ascontiguousarray(params[name].numpy().T)) for name in names
        }
        return made, {**params, **turned}
