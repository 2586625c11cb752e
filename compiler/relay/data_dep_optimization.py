"""`relay.data_dep_optimization`: conversions that depend on parameter values.

The conversions to sparse operators are unsupported. Their names exist so that scripts that offer
them as an option can be imported.
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
    """Unsupported conversion under its TVM name."""

    def __init__(self, name: str, instead: str) -> None:
        self.name = name
        self.instead = instead

    def convert(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise UnsupportedRelayOperatorError with an alternative."""
        raise UnsupportedRelayOperatorError(
            f"relay.data_dep_optimization.{self.name}.convert is not supported: {self.instead}"
        )


_BUILD_DENSE = "build the dense model, or call relay.nn.sparse_dense with the weight's parts"

bsr_conv2d = _Conversion("bsr_conv2d", "build the dense model")
bsr_dense = _Conversion("bsr_dense", _BUILD_DENSE)


class simplify_fc_transpose:
    """Replace dense over a transposed weight with dense over the pre-transposed weight."""

    @staticmethod
    def convert(
        func: relax.Function, params: dict[str, Any]
    ) -> tuple[relax.Function, dict[str, Any]]:
        """Rewrite dense(x, transpose(w)) to dense(x, w'); return it, and params with w' for w."""
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
