#!/usr/bin/env python3
"""Decoding with a cache of keys and values, one library for the prompt and for each step.

    python -m scripts.bench.decoder gpt2.onnx --prompt 8 --tokens 1024

The model is one of `decoders.py`. Baton adds keys and values to a cache in place; onnxruntime
gets the caches that a run returned without a copy. Prints tokens a second of processor time, over
each quarter too, the weights' bytes that are multiplied in a second beside what a thread reads from
memory, how much memory a text takes, and how far the logits are from each other while the engines'
tokens are the same.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler import target as targets
from scripts.bench.machine_peak import memory_gbytes

Step = Callable[[np.ndarray], np.ndarray]
"""From the tokens (1, n) that are new to the logits (1, n, vocabulary)."""


def caches(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Inputs that are caches, in the order of the results behind the logits: shapes when empty."""
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
        if value.name.startswith("past_")
    }


def with_baton(path: str, prompt: int, room: int) -> Callable[[], Step]:
    """What begins a text on Baton, whose cache has room for the longest one."""
    import tvm

    from compiler import relay
    from compiler.runtime.graph_executor import GraphModule

    mod, params = relay.frontend.from_onnx(path)
    mod = relay.with_kv_cache(relay.with_bounds(mod, {"seq": prompt}), "past", room)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="llvm", params=params)
    module = GraphModule(library["default"](tvm.cpu()))

    def begin() -> Step:
        module.use_kv_cache(module.make_kv_cache())

        def step(ids: np.ndarray) -> np.ndarray:
            module.run(ids=ids)
            logits: np.ndarray = module.get_output(0).numpy()
            return logits

        return step

    return begin


def with_onnxruntime(path: str, *_: int) -> Callable[[], Step]:
    """What begins a text on onnxruntime, with bound inputs and results."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    empty = caches(onnx.load(path))

    def begin() -> Step:
        of_numpy = onnxruntime.OrtValue.ortvalue_from_numpy
        state = {name: of_numpy(np.zeros(shape, "float32")) for name, shape in empty.items()}

        def step(ids: np.ndarray) -> np.ndarray:
            binding = session.io_binding()
            binding.bind_cpu_input("ids", ids)
            for name, value in state.items():
                binding.bind_ortvalue_input(name, value)
            for name in names:
                binding.bind_output(name)
            session.run_with_iobinding(binding)
            results = binding.get_outputs()
            state.update(dict(zip(state, results[1:], strict=True)))
            logits: np.ndarray = results[0].numpy()
            return logits

        return step

    return begin


def multiplied_bytes(proto: onnx.ModelProto) -> int:
    """Bytes of the weights of all products, which each token reads."""
    weights = {each.name: each for each in proto.graph.initializer}
    return sum(
        numpy_helper.to_array(weights[name]).nbytes
        for node in proto.graph.node
        if node.op_type.startswith("MatMul")
        for name in node.input
        if name in weights
    )


def resident() -> float:
    """MB of memory that the process has."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def generate(step: Step, prompt: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """The logits (vocabulary,) of each of `count` tokens, the likeliest one after the other."""
    ids = prompt
    for _ in range(count):
        logits = step(ids)[0, -1]
        yield logits
        ids = np.array([[logits.argmax()]], "int64")


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", help="an ONNX file of scripts.models.decoders")
    parser.add_argument("--prompt", type=int, default=8, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens to generate")
    args = parser.parse_args()
    proto = onnx.load(args.path)
    vocabulary = proto.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    size = multiplied_bytes(proto) / 1e9
    del proto
    memory = memory_gbytes(targets.parse("llvm"), 1)
    print(f"{size:.2f} GB of weights are multiplied for a token; a thread reads {memory:.1f} GB/s")
    prompt = np.random.default_rng(0).integers(0, vocabulary, (1, args.prompt))
    room = args.prompt + args.tokens
    texts: dict[str, Any] = {}
    for engine, prepare in (("baton", with_baton), ("onnxruntime", with_onnxruntime)):
        begin = prepare(args.path, args.prompt, room)
        list(generate(begin(), prompt, 2))
        logits = np.zeros((args.tokens, vocabulary), "float32")
        logits.fill(0)  # has its memory before it is measured
        before, times = resident(), [time.process_time()]
        for number, each in enumerate(generate(begin(), prompt, args.tokens)):
            logits[number] = each
            times.append(time.process_time())
        grown = resident() - before
        texts[engine] = logits
        marks = [args.tokens * i // 4 for i in range(5)]
        rates = [(b - a) / (times[b] - times[a]) for a, b in itertools.pairwise(marks) if b > a]
        whole = args.tokens / (times[-1] - times[0])
        print(f"{engine:12} {whole:8.1f} tokens/s; by quarter", *(f"{rate:.1f}" for rate in rates))
        print(
            f"{'':12} {whole * size:8.1f} GB/s of weights, {whole * size / memory:.2f} of memory's"
        )
        print(f"{'':12} {grown:8.1f} MB more at its end")
    chosen = [text.argmax(-1) for text in texts.values()]
    same = int((np.cumsum(chosen[0] != chosen[1]) == 0).sum())
    near = [text[: max(same, 1)] for text in texts.values()]
    difference = np.abs(near[0] - near[1]).max() / np.abs(near[1]).max()
    print(f"{same} of {args.tokens} tokens are the same; logits differ by {difference:.1e} there")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
