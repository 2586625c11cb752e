"""The BYOC flow of old scripts on ONNX models: what its patterns find, counted twice, and results.

    python -m scripts.conformance.byoc resnet18.onnx bert_base.onnx

Layers with bias and activation, or whole blocks of layers, become composite functions
(MergeComposite, AnnotateTarget, MergeCompilerRegions, PartitionGraph). The same layers are counted
in the ONNX graph, and the built module is compared with onnxruntime.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from compiler import relay
from compiler.relay import transform
from compiler.relay.op.contrib.tables import chain, gelu
from compiler.runtime.graph_executor import GraphModule
from scripts.models.random_inputs import random_inputs

COMPILER = "counted"
BIAS = "add|nn.bias_add(c)"
CONV = "nn.conv2d(c) nn.bias_add(c)? add(c)?"  # its bias and that of a batch norm
DENSE = f"nn.dense(c) reshape? {BIAS} reshape?"  # samples and words are rows of one matrix


def layer_table() -> list[tuple[str, Any]]:
    """Single layers with what follows them."""
    dense = chain(DENSE)
    return [
        ("counted.conv_act", chain(f"{CONV} nn.relu|clip")),
        ("counted.conv", chain(CONV)),
        ("counted.dense_bias_gelu", gelu(dense)),
        ("counted.dense_bias", dense),
    ]


def block_table() -> list[tuple[str, Any]]:
    """Whole blocks: residual ones of two and three convolutions, feed-forward layers."""
    layer = f"{CONV} nn.relu|clip"
    last = f"nn.conv2d(c) {BIAS} add(c)? add(_)"
    return [
        ("counted.bottleneck", chain(f"{layer} {layer} {last} nn.relu?")),
        ("counted.basic_block", chain(f"{layer} {last} nn.relu?")),
        ("counted.feed_forward", chain(f"reshape? {DENSE}", gelu(chain(DENSE)))),
    ]


def partitioned(
    mod: tvm.IRModule, table: Sequence[tuple[Any, ...]], **options: Any
) -> tvm.IRModule:
    """What an old script did after the import."""
    steps = [
        transform.SimplifyInference(),
        transform.FoldConstant(),
        transform.FoldScaleAxis(),
        transform.FoldConstant(),
        transform.MergeComposite(table),
        transform.AnnotateTarget(COMPILER),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(**options),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(steps)(mod)


def regions(mod: tvm.IRModule) -> list[relax.Function]:
    return [f for _, f in mod.functions_items() if f.attrs is not None and "Compiler" in f.attrs]


def composites(mod: tvm.IRModule) -> dict[str, int]:
    """How often each pattern stands in the regions."""
    found: Counter[str] = Counter()

    def look(node: Any) -> None:
        if isinstance(node, relax.Function) and "Composite" in (node.attrs or {}):
            found[str(node.attrs["Composite"]).split(".")[1]] += 1

    for function in regions(mod):
        relay.analysis.post_order_visit(function, look)
    return dict(found)


class OnnxGraph:
    """An ONNX graph, asked for chains of nodes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self.nodes = list(model.graph.node)
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.known = {tensor.name for tensor in model.graph.initializer}

    def layers(self) -> dict[str, int]:
        """What `layer_table` finds in it."""
        found: Counter[str] = Counter()
        for node in self.nodes:
            behind = self._behind(node)
            weighted = len(node.input) > 1 and node.input[1] in self.known
            if node.op_type == "Conv":
                behind = behind[1:] if behind[:1] == ["BatchNormalization"] else behind
                found["conv_act" if behind[:1] in (["Relu"], ["Clip"]) else "conv"] += 1
            elif node.op_type == "Gemm":
                found["dense_bias"] += 1
            elif node.op_type == "MatMul" and weighted and behind[:1] == ["Add"]:
                found["dense_bias_gelu" if behind[1:2] == ["Gelu"] else "dense_bias"] += 1
        return dict(found)

    def blocks(self) -> dict[str, int]:
        """What `block_table` finds in it."""
        found: Counter[str] = Counter()
        three = ["Conv", "Act", "Conv", "Act", "Conv", "Add"]
        for node in self.nodes:
            kinds = [
                "Act" if kind in ("Relu", "Clip") else kind
                for kind in [node.op_type, *self._behind(node)]
                if kind != "BatchNormalization"
            ]
            # A block begins where nothing of the kind is in front of it.
            if kinds[:6] == three:
                found["bottleneck"] += 1
            elif node.op_type == "Conv" and kinds[:4] == three[2:] and not self._inner(node):
                found["basic_block"] += 1
            elif node.op_type == "Gelu":
                found["feed_forward"] += 1
        return dict(found)

    def _inner(self, conv: onnx.NodeProto) -> bool:
        """Whether a convolution is the middle one of three."""
        makers = {name: node for node in self.nodes for name in node.output}
        node, kinds = makers.get(conv.input[0]), []
        while node is not None and len(self.readers[node.output[0]]) == 1:
            kinds.append(node.op_type)
            if node.op_type == "Conv":
                return True
            node = makers.get(node.input[0]) if node.op_type != "Add" else None
        return False

    def _behind(self, node: onnx.NodeProto) -> list[str]:
        """The kinds of the nodes that alone read one after the other."""
        kinds: list[str] = []
        while len(readers := self.readers.get(node.output[0], [])) == 1 and len(kinds) < 9:
            node = readers[0]
            kinds.append(node.op_type)
        return kinds


def run(library: Any, values: dict[str, np.ndarray]) -> np.ndarray:
    """The first output."""
    module = GraphModule(library["default"](tvm.cpu()))
    module.run(**values)
    return module.get_output(0).numpy()


def main(paths: list[str]) -> int:
    import onnxruntime

    failures = 0
    for path in paths:
        model = onnx.load(path)
        graph, values = OnnxGraph(model), random_inputs(model, np.random.default_rng(0))
        (expected, *_) = onnxruntime.InferenceSession(path).run(None, values)
        mod, params = relay.frontend.from_onnx(model)
        for title, table, wanted in (
            ("layers", layer_table(), graph.layers()),
            ("blocks", block_table(), graph.blocks()),
        ):
            started = time.perf_counter()
            parts = partitioned(mod, table)
            spent = time.perf_counter() - started
            error = float(
                np.abs(run(relay.build(parts, "llvm", params=params), values) - expected).max()
            )
            right = composites(parts) == wanted and error < 1e-3 * max(1, np.abs(expected).max())
            failures += not right
            print(
                f"{path}: {title} {composites(parts)} in {len(regions(parts))} regions, "
                f"in the graph {wanted}, partitioned in {spent:.1f} s, largest error {error:.1e}: "
                f"{'right' if right else 'WRONG'}",
                flush=True,
            )
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
