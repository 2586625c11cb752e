"""`tvm.relay.frontend.pytorch` and `pytorch_utils`, as scripts of TVM 0.6 to 0.19 import them."""

from __future__ import annotations

import logging
import re
from typing import Any

from ..relay.frontend.torch import from_pytorch as from_pytorch

_logger = logging.getLogger("baton.legacy")


def get_graph_input_names(script_module: Any) -> list[str]:
    """Names of a traced module's inputs; the first value of its graph is the module itself."""
    return [value.debugName() for value in list(script_module.graph.inputs())[1:]]


def is_version_greater_than(ver: str) -> bool:
    """Whether the installed PyTorch is newer than a version such as "1.5.0"."""
    import torch

    def numbers(text: str) -> list[int]:
        return [int(each) for each in re.findall(r"\d+", text.partition("+")[0])[:3]]

    return numbers(torch.__version__) > numbers(ver)


def rewrite_nms_to_batched_nms(mod: Any) -> Any:
    """The module itself: it has none of the patterns that TVM's importer made."""
    _logger.info("imported detection networks have no pattern to rewrite")
    return mod


rewrite_batched_nms_with_max_out_size = rewrite_nms_to_batched_nms


def rewrite_scatter_to_gather(mod: Any, num_scales: int) -> Any:
    """Same as `rewrite_nms_to_batched_nms`."""
    del num_scales
    return rewrite_nms_to_batched_nms(mod)
