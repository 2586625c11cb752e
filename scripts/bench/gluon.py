"""What a hybridized call costs beside the bare library call, and beside the ONNX export's build.

python -m scripts.bench.gluon overhead
python -m scripts.bench.gluon network resnet18_v1 --size 224 --backend llvm
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm

from compiler import relay
from compiler.mxnet import np
from compiler.mxnet.gluon import nn
from compiler.mxnet.gluon.hybrid_block import HybridBlock
from compiler.mxnet.gluon.model_zoo import vision
from compiler.mxnet.symbol.to_onnx import to_onnx


def fastest(calls: Sequence[Callable[[], Any]], number: int, rounds: int) -> list[float]:
    """Seconds per call of each function, the best of several rounds in which they take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(number):
                call()
            best[index] = min(best[index], (time.perf_counter() - start) / number)
    return best


def small_network() -> HybridBlock:
    """Ten dense layers of 64."""
    net = nn.HybridSequential(*(nn.Dense(64, activation="relu") for _ in range(10)))
    net.initialize()
    return net


def overhead() -> None:
    """Print microseconds per call of a small network, by flags, and of its library alone."""
    x = np.random.uniform(size=(1, 64))
    choices: tuple[dict[str, Any], ...] = (
        {},
        {"static_alloc": True},
        {"static_alloc": True, "static_shape": True},
    )
    for flags in choices:
        net = small_network()
        net.hybridize(**flags)
        net(x)
        assert net.cached_op is not None
        library = net.cached_op.library()
        entry, tensor = library.entry(tvm.cpu()), x._value.tensor
        executor = library["default"](tvm.cpu())
        executor.set_input(0, tensor)
        calls = [partial(net, x), partial(entry, tensor), executor.run]
        hybrid, bare, run = (seconds * 1e6 for seconds in fastest(calls, 500, 20))
        print(
            f"{', '.join(flags) or 'no flags':28} hybridized {hybrid:6.2f} us, library's entry "
            f"{bare:6.2f} us, executor's run() {run:6.2f} us, overhead {hybrid - bare:5.2f} us"
        )


def network(name: str, size: int, rounds: int, backend: str) -> None:
    """Print milliseconds per call of a network, hybridized, optimized, and as its ONNX export."""
    net = vision.get_model(name)
    net.initialize()
    net.hybridize()
    x = np.random.uniform(size=(1, 3, size, size))
    net(x)
    symbol, arrays = net.export(None)
    params = {key[4:]: value.asnumpy() for key, value in arrays.items()}
    model = to_onnx(symbol, params, {"data": x.shape})
    mod, values = relay.frontend.from_onnx(model, shape={"data": x.shape})
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="llvm", params=values)
    executor = library["default"](tvm.cpu())
    executor.set_input("data", x._value.tensor)
    optimized = vision.get_model(name)
    optimized.share_parameters(net.collect_params())
    optimized.optimize_for(x, backend=backend)
    optimized(x)
    calls = {
        "build of the ONNX export": executor.run,
        "hybridized": lambda: net(x),
        f"optimized for {backend}": lambda: optimized(x),
    }
    times: dict[str, list[float]] = {title: [] for title in calls}
    for _ in range(rounds):
        for title, call in calls.items():
            start = time.perf_counter()
            call()
            times[title].append(time.perf_counter() - start)
    base = times["build of the ONNX export"]
    print(f"{name} at {size}, {rounds} rounds in turn")
    for title, taken in times.items():
        ratio = statistics.median(one / other for one, other in zip(taken, base))
        print(
            f"  {title:26} median {statistics.median(taken) * 1e3:8.3f} ms, best "
            f"{min(taken) * 1e3:8.3f} ms, median ratio to the first {ratio:.3f}"
        )


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("overhead")
    one = commands.add_parser("network")
    one.add_argument("name")
    one.add_argument("--size", type=int, default=224)
    one.add_argument("--rounds", type=int, default=60)
    one.add_argument("--backend", default="llvm")
    args = parser.parse_args()
    if args.command == "overhead":
        overhead()
    else:
        network(args.name, args.size, args.rounds, args.backend)


if __name__ == "__main__":
    main()
