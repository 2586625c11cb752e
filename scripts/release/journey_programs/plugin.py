"""A partitioner of a user's own: it takes convolutions and products, with what follows them."""

import json

from compiler.partition import Strategy, register

TAKEN = ("nn.conv2d", "nn.dense", "nn.bias_add", "nn.relu")


def claim(graph_json, ids, options):
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in TAKEN:
            ids[index] = -1


def accept(subgraph_json, subgraph_id, options, attrs, args, aux):
    attrs["target"] = "llvm"
    return True


register("mine", Strategy("products", claim, accept))
