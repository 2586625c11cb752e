"""A backend that takes options partitions a block, which is then called compiled."""

import json

from compiler import partition
from compiler.mxnet import np
from compiler.mxnet.gluon import HybridBlock, nn


class Classifier(HybridBlock):
    """Two dense layers and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(64, activation="relu")
        self.scores = nn.Dense(10)

    def forward(self, x):
        scores = self.scores(self.hidden(x))
        return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


def claim(graph_json, ids, options):
    """Claim the operators that the option `ops` names."""
    wanted = options.get("ops", "").split(",")
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in wanted:
            ids[index] = -1


def accept(graph_json, number, options, attrs, args, aux):
    """Take only subgraphs whose parameters are large enough; their values are at hand."""
    size = sum(value.size for name, value in args.items() if name.endswith("weight"))
    attrs["weights"] = str(size)
    return size >= int(options.get("min_weights", "0"))


def main() -> None:
    """Build the block, optimize it and compare."""
    partition.register("picky", [partition.Strategy("large", claim, accept)], replace=True)
    net = Classifier()
    net.initialize()
    x = np.random.uniform(size=(2, 32))
    expected = net(x).asnumpy()

    net.optimize_for(x, backend="picky", ops="FullyConnected,Activation", min_weights=100)

    symbol, _ = net.export(None)
    for node in symbol.graph.nodes:
        if node.subgraphs:
            inside = [inner.op for inner in node.subgraphs[0].nodes if not inner.is_variable]
            print(f"{node.name}: {' '.join(inside)}, {node.attrs['weights']} weights")
    print("largest difference:", abs(net(x).asnumpy() - expected).max())


if __name__ == "__main__":
    main()
