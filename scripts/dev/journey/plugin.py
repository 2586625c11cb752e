"""A partitioner of a user's own: it takes what a network's classifier consists of."""

import json

from compiler.partition import Strategy, register


def claim(graph_json, ids, options):
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in ("nn.dense", "nn.bias_add"):
            ids[index] = -1


def accept(subgraph_json, subgraph_id, options, attrs, args, aux):
    attrs["target"] = "llvm"
    return True


register("mine", Strategy("classifier", claim, accept))
