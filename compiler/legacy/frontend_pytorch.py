"""`tvm.relay.frontend.pytorch`, as scripts of TVM 0.6 to 0.19 import it."""

from typing import Any

from ..relay.frontend.torch import from_pytorch as from_pytorch


def get_graph_input_names(script_module: Any) -> list[str]:
    """Names of a traced module's inputs; the first value of its graph is the module itself."""
    return [value.debugName() for value in list(script_module.graph.inputs())[1:]]
