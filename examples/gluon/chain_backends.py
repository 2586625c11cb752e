"""Two backends partition a block one after the other: calls of optimize_for chain."""

import json

from compiler import partition
from compiler.mxnet import np
from compiler.mxnet.gluon import nn


def claims(*ops):
    """A callback that claims operators by their names."""

    def supported(graph_json, ids, options):
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in ops:
                ids[index] = -1

    return supported


def subgraphs(net):
    """The operators in each subgraph of the block's graph."""
    symbol, _ = net.export(None)
    return [
        [inner.op for inner in node.subgraphs[0].nodes if not inner.is_variable]
        for node in symbol.graph.nodes
        if node.subgraphs
    ]


def main() -> None:
    """Chain two backends, then start over with one."""
    for name, ops in {"products": ("FullyConnected",), "activations": ("Activation",)}.items():
        partition.register(name, [partition.Strategy(name, claims(*ops))], replace=True)
    net = nn.HybridSequential(nn.Dense(32, activation="tanh"), nn.Dense(8, activation="relu"))
    net.initialize()
    x = np.random.uniform(size=(4, 16))
    expected = net(x).asnumpy()

    net.optimize_for(x, backend="products")
    net.optimize_for(x, backend="activations")
    print("chained:", subgraphs(net))
    print("largest difference:", abs(net(x).asnumpy() - expected).max())

    net.optimize_for(x, backend="activations", clear=True)
    print("started over:", subgraphs(net))
    print("largest difference:", abs(net(x).asnumpy() - expected).max())


if __name__ == "__main__":
    main()
