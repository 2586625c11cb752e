"""The graph tuner: one config for each convolution of a network, conversions of layouts counted.

executor = autotvm.graph_tuner.DPTuner(mod, {"data": (1, 3, 224, 224)}, "conv.log",
                                       [relay.op.get("nn.conv2d")], target)
executor.benchmark_layout_transform(infer_layout=True)
executor.run()
executor.write_opt_sch2record_file("net.graph.log")
"""

from __future__ import annotations

from ...support.lazy_import import lazy_attributes

_MEMBERS = {
    "BaseGraphTuner": ".graph_tuner",
    "DPTuner": ".graph_tuner",
    "PBQPTuner": ".graph_tuner",
}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
