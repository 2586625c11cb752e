"""A network of one kernel."""

from __future__ import annotations

import numpy as np
from tvm import relax


def dense_module():
    """A dense layer with ReLU: x (4, 16) times constant weights (16, 32), float32."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    weight = relax.const(np.arange(512, dtype="float32").reshape(16, 32) / 512)
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, weight))))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()
