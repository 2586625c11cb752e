"""A batch of no images: nothing is computed, and the results have the right shape."""

from __future__ import annotations

import numpy as np
import tvm

from compiler import relay
from compiler.runtime import graph_executor


def test_a_network_of_every_kind_of_kernel_takes_an_empty_batch():
    x = relay.var("x", shape=(0, 3, 8, 8))
    images = relay.nn.relu(relay.nn.conv2d(x, relay.var("w", shape=(8, 3, 3, 3)), padding=(1, 1)))
    pooled = relay.nn.batch_flatten(relay.nn.max_pool2d(images, (2, 2), (2, 2)))
    scores = relay.nn.softmax(relay.nn.dense(pooled, relay.var("d", shape=(16, 128))))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(scores), scores))
    weights = {"w": np.ones((8, 3, 3, 3), "float32"), "d": np.ones((16, 128), "float32")}
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=weights)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", np.zeros((0, 3, 8, 8), "float32"))
    module.run()
    assert module.get_output(0).numpy().shape == (0, 16)
