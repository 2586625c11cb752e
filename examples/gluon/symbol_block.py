"""A block is exported, imported from disk as a SymbolBlock, and optimized there."""

import json
import tempfile
from pathlib import Path

from compiler import partition
from compiler.mxnet import np
from compiler.mxnet.gluon import SymbolBlock, nn


def claim(graph_json, ids, options):
    """Claim convolutions and what follows them."""
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in ("Convolution", "BatchNorm", "Activation"):
            ids[index] = -1


def main() -> None:
    """Export, import, optimize, export again."""
    partition.register("convolutions", [partition.Strategy("conv", claim)], replace=True)
    net = nn.HybridSequential(
        nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"),
        nn.GlobalAvgPool2D(), nn.Dense(4),
    )  # fmt: skip
    net.initialize()
    net.hybridize()
    x = np.random.uniform(size=(1, 3, 8, 8))
    expected = net(x).asnumpy()

    with tempfile.TemporaryDirectory() as folder:
        symbol_file, param_file = net.export(Path(folder) / "net")
        block = SymbolBlock.imports(symbol_file, ["data"], param_file)
        print("imported, largest difference:", abs(block(x).asnumpy() - expected).max())

        block.optimize_for(x, backend="convolutions")
        print("optimized, largest difference:", abs(block(x).asnumpy() - expected).max())

        again = SymbolBlock.imports(*_files(block, Path(folder) / "optimized"))
        print("imported again, largest difference:", abs(again(x).asnumpy() - expected).max())


def _files(block: SymbolBlock, path: Path) -> tuple[str, list[str], str]:
    symbol_file, param_file = block.export(path, epoch=1)
    return symbol_file, ["data"], param_file


if __name__ == "__main__":
    main()
