"""The graph JSON of a library, in the structure that the graph executor of old read.

nodes          one "null" node for each input, then for each weight, then one "tvm_op" node
               "main" that takes them all; fusion happened at build time, so the kernels
               inside it are not nodes (the build report lists them)
arg_nodes      ids of the "null" nodes
heads          the outputs, [id of "main", output, 0]
attrs          shape, dltype, storage_id and device_index for each output of each node
node_row_ptr   for each node, the first of its entries in attrs
baton          the library's metadata without the report, from which `create` makes an executor
"""

from __future__ import annotations

import json
from dataclasses import replace

from compiler.errors import InputError, LoadError
from compiler.runtime.metadata import UNKNOWN, Metadata, TensorInfo

# DLPack's device types, which is what the graph executor of old stored
_DEVICE_TYPES = {"cpu": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "rocm": 10}


def graph_json(metadata: Metadata) -> str:
    """The graph of a library as JSON."""
    arguments = (*metadata.inputs, *metadata.params)
    count = len(arguments)
    nodes: list[dict[str, object]] = [
        {"op": "null", "name": info.name, "inputs": []} for info in arguments
    ]
    nodes.append(
        {
            "op": "tvm_op",
            "name": "main",
            "attrs": {
                "func_name": f"tvmgen_{metadata.mod_name}_main",
                "num_inputs": str(count),
                "num_outputs": str(len(metadata.outputs)),
                "flatten_data": "0",
            },
            "inputs": [[index, 0, 0] for index in range(count)],
        }
    )
    entries = (*arguments, *metadata.outputs)
    devices = [_DEVICE_TYPES.get(info.device or metadata.devices[0], 0) for info in entries]
    graph = {
        "nodes": nodes,
        "arg_nodes": list(range(count)),
        "heads": [[count, index, 0] for index in range(len(metadata.outputs))],
        "attrs": {
            "dltype": ["list_str", [info.dtype for info in entries]],
            "shape": ["list_shape", [_numbers(info) for info in entries]],
            "storage_id": ["list_int", list(range(len(entries)))],
            "device_index": ["list_int", devices],
        },
        "node_row_ptr": [*range(count + 1), len(entries)],
        "baton": json.loads(replace(metadata, report={}).to_json()),
    }
    return json.dumps(graph)


def _numbers(info: TensorInfo) -> list[int]:
    """The extents of a tensor; UNKNOWN for those that running the model tells."""
    return [extent if isinstance(extent, int) else UNKNOWN for extent in info.shape]


def metadata_of(text: str) -> Metadata:
    """The metadata inside of a graph JSON.

    Raises InputError: the text is not JSON, or not the graph of a library of Baton's.
    """
    try:
        graph = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"the graph is not valid JSON: {error}") from error
    if not isinstance(graph, dict) or "baton" not in graph:
        raise InputError(
            "the graph holds no metadata of Baton's; take it from get_graph_json() of a library "
            "that Baton built"
        )
    try:
        return Metadata.from_json(json.dumps(graph["baton"]))
    except LoadError as error:
        raise InputError(f"the graph can't be used: {error}") from error
