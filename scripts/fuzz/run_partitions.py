"""Random programs with branches, loops and local functions through chains of back ends.

    python -m scripts.fuzz.run_partitions --seed 1 --count 200

Each program is partitioned by two to four back ends, by `partition` or by Relay's passes, built and
run. The back ends compute their subgraphs with numpy and check what they get: operators that they
claimed, no annotations, arguments of the promised shapes and dtypes. No operator may vanish or be
there twice, and results must be those of the program evaluated with numpy.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler import partition, relay
from compiler.ir.rewrite import expressions_in, relax_functions
from compiler.relay import dialect, transform
from compiler.relay.nested_expressions import nested, operands, post_order

UNARY: dict[str, Callable[..., Any]] = {
    "tanh": np.tanh,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "negative": np.negative,
    "exp": lambda x: np.exp(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "subtract": np.subtract,
}
NUMPY = {**UNARY, **BINARY}
SHAPE = (2, 3)
DTYPES = {"x": "float32", "c": "bool", "n": "int32"}
"""Inputs by the first letter of their names: data, conditions, and numbers of iterations."""
Value = tuple[relax.Expr, Callable[[dict[Any, Any]], Any]]  # a node, and its value from the inputs


def _once(function: Callable[[dict[Any, Any]], Any]) -> Callable[[dict[Any, Any]], Any]:
    """Compute a value once per set of inputs."""

    def value(inputs: dict[Any, Any]) -> Any:
        key = id(function)
        if key not in inputs:
            inputs[key] = function(inputs)
        return inputs[key]

    value.keep = function  # type: ignore[attr-defined]  # its id stays its own
    return value


class Maker:
    """Makes one program."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: dict[str, relax.Var] = {}
        self.loops = 0

    def input(self, kind: str = "x") -> Value:
        name = f"{kind}{self.rng.randrange(2)}"
        if name not in self.inputs:
            shape = SHAPE if kind == "x" else ()
            self.inputs[name] = relay.var(name, shape=shape, dtype=DTYPES[kind])
        return self.inputs[name], lambda inputs, name=name: inputs[name]

    def body(self, known: list[Value], size: int, depth: int) -> Value:
        """Some operators over known values; the last one is the result."""
        known = list(known)
        for _ in range(size):
            known.append(self.step(known, depth))
        return known[-1]

    def step(self, known: list[Value], depth: int) -> Value:
        kind = self.rng.random()
        if kind < 0.14 and depth < 2:
            return self.condition(known, depth)
        if kind < 0.22 and depth < 2:
            return self.local(known, depth)
        if kind < 0.25 and depth == 0:
            return self.found(known)
        if kind < 0.31 and depth < 2 and self.loops < 2:
            return self.loop(known, depth)
        if kind < 0.65:
            name = self.rng.choice(sorted(UNARY))
            (node, value), function = self.pick(known), UNARY[name]
            made = getattr(relay, name)(relay.tanh(node) if name == "exp" else node)
            if name == "exp":
                return made, _once(lambda i: np.exp(np.tanh(value(i))))
            return made, _once(lambda i: function(value(i)))
        name = self.rng.choice(sorted(BINARY))
        (a, x), (b, y), function = self.pick(known), self.pick(known), BINARY[name]
        made = relay.tanh(getattr(relay, name)(a, b))
        return made, _once(lambda i: np.tanh(function(x(i), y(i))))

    def pick(self, known: list[Value]) -> Value:
        return self.rng.choice(known[-4:] if self.rng.random() < 0.7 else known)

    def condition(self, known: list[Value], depth: int) -> Value:
        flag, is_true = self.input("c")
        sizes = [self.rng.randrange(0, 4) for _ in range(2)]
        (a, x), (b, y) = (self.body([*known, self.pick(known)], size, depth + 1) for size in sizes)
        if self.rng.random() < 0.7:
            return relay.If(flag, a, b), _once(lambda i: x(i) if is_true(i) else y(i))
        pair = relay.If(flag, relay.Tuple([a, b]), relay.Tuple([b, a]))
        return relay.TupleGetItem(pair, 1), _once(lambda i: y(i) if is_true(i) else x(i))

    def local(self, known: list[Value], depth: int) -> Value:
        parameter = relay.var(f"p{depth}", shape=SHAPE)
        given: list[Any] = []
        own: Value = (parameter, lambda i: given[-1](i))
        node, value = self.body([own], self.rng.randrange(1, 4), depth + 1)
        function = relay.Function([parameter], node)
        argument, x = self.pick(known)

        def result(inputs: dict[Any, Any]) -> Any:
            given.append(x)
            flags: dict[Any, Any] = {
                key: each for key, each in inputs.items() if isinstance(key, str)
            }
            flags[id(given)] = x(inputs)
            given[-1] = lambda _: flags[id(given)]
            found = value(flags)
            given.pop()
            return found

        free = [var for var in relay.analysis.free_vars(function) if var.name.startswith("x")]
        return (relay.Call(function, [argument]), _once(result)) if not free else (argument, x)

    def found(self, known: list[Value]) -> Value:
        """Elements whose number values decide, summed up to a known shape."""
        node, x = self.pick(known)
        indices = relay.argwhere(relay.greater(node, relay.const(0.0)))
        total = relay.sum(relay.abs(relay.cast(indices, "float32")))
        base, y = self.pick(known)

        def value(inputs: dict[Any, Any]) -> Any:
            whole = np.abs(np.argwhere(x(inputs) > 0).astype("float32")).sum()
            return np.tanh(y(inputs) + np.float32(whole))

        return relay.tanh(relay.add(base, total)), _once(value)

    def loop(self, known: list[Value], depth: int) -> Value:
        """A loop whose body reads the state and an outer value; it runs zero to two times."""
        self.loops += 1
        state, outer = f"state{self.loops}", f"outer{self.loops}"
        (start, x), (free, y) = self.pick(known), self.pick(known)
        steps: list[Callable[[dict[Any, Any]], Any]] = []

        def body(i: relax.Expr, variable: relax.Expr) -> list[relax.Expr]:
            readable: list[Value] = [(variable, lambda i: i[state])]
            if self.rng.random() < 0.5:
                readable.insert(0, (free, lambda i: y(i[outer])))
            node, value = self.body(readable, self.rng.randrange(1, 4), depth + 1)
            steps.append(value)
            return [relay.add(i, relay.const(1)), node]

        times = self.rng.randrange(3)
        limit, count = relay.const(times), lambda _: times
        if self.rng.random() < 0.5:
            limit, count = self.input("n")
        loop = relay.loops.while_loop(
            lambda i, _: relay.less(i, limit),
            [relay.var("i", shape=(), dtype="int32"), relay.var(state, shape=SHAPE)],
            body,
        )

        def result(inputs: dict[Any, Any]) -> Any:
            current = x(inputs)
            for _ in range(int(count(inputs))):
                given = {key: each for key, each in inputs.items() if isinstance(key, str)}
                current = steps[0]({**given, state: current, outer: inputs})
            return current

        return relay.TupleGetItem(relay.Call(loop, [relay.const(0), start]), 1), _once(result)


class BackEnd:
    """Computes subgraphs with numpy and notes what is wrong with them."""

    def __init__(self, name: str, claimed: set[str], faults: list[str]) -> None:
        self.name, self.claimed, self.faults = name, claimed, faults
        self.calls = 0
        partition.register(name, partition.Strategy("s", self.claim), compile=self.compile)
        for each in claimed:
            operator = dialect.operator(each)
            if not operator.has_attr(f"target.{name}"):
                tvm.ir.register_op_attr(operator.name, f"target.{name}", lambda _call: True)

    def claim(self, text: str, ids: list[int], _options: Any) -> None:
        for index, node in enumerate(json.loads(text)["nodes"]):
            ids[index] = -1 if node["op"] in self.claimed else -2

    def compile(self, subgraph: tvm.IRModule, _params: Any, _options: Any) -> Any:
        ((_, function),) = relax_functions(subgraph)
        body = nested(function)
        order = [node for node in post_order(body) if not isinstance(node, relax.SeqExpr)]
        for node in order:
            if isinstance(node, relax.Call):
                name = dialect.relay_name(node)
                if name not in self.claimed:
                    self.faults.append(f"{self.name} got {name or node}")

        def run(*arrays: np.ndarray) -> Any:
            self.calls += 1
            values = {}
            for var, array in zip(function.params, arrays, strict=True):
                shape = [getattr(each, "value", None) for each in var.ty.shape.values]
                pairs = zip(shape, array.shape, strict=True)
                fits = all(each in (None, size) for each, size in pairs)
                if not fits or str(array.dtype) != str(var.ty.dtype):
                    self.faults.append(f"{self.name} got {array.shape} {array.dtype} for {var.ty}")
                values[hash(var)] = array
            for node in order:
                if hash(node) not in values:
                    values[hash(node)] = _computed(node, [values[hash(e)] for e in operands(node)])
            return values[hash(body)]

        return run


def _computed(node: relax.Expr, args: list[Any]) -> Any:
    if isinstance(node, relax.Tuple):
        return tuple(args)
    if isinstance(node, relax.TupleGetItem):
        return args[0][node.index]
    if isinstance(node, tvm.ir.GenericConst):
        return node.value.numpy()
    return np.asarray(NUMPY[dialect.relay_name(node)](*args)).astype(str(node.ty.dtype))


def operators(mod: tvm.IRModule) -> Counter[str]:
    calls = (c for _, f in relax_functions(mod) for c in expressions_in(f, relax.Call))
    return Counter(map(dialect.relay_name, filter(dialect.is_relay, calls)))


def check(seed: int) -> tuple[str, bool]:
    """Run one program; return what was wrong with it, and whether a back end ran anything."""
    rng = random.Random(seed)
    maker = Maker(rng)
    start = [maker.input(), maker.input()]
    node, value = maker.body(start, rng.randrange(3, 10), 0)
    params = [*maker.inputs.values()]
    mod = tvm.IRModule.from_expr(relay.Function(params, node))
    faults: list[str] = []
    names = [f"fuzz_{seed}_{number}" for number in range(rng.randrange(2, 5))]
    present = sorted(set(NUMPY) & set(operators(mod)))
    claimed = [{each for each in NUMPY if rng.random() < 0.4} for _ in names]
    claimed[0] |= set(rng.sample(present, len(present) * 2 // 3))
    backends = [BackEnd(name, each, faults) for name, each in zip(names, claimed)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = _partitioned(mod, names, rng)
            left = operators(made)
            if any("annotation" in name for name in left):
                faults.append("annotations are left")
            before = operators(mod)
            if not maker.loops and left != before:
                faults.append(f"operators were {dict(before)} and are {dict(left)}")
            run = relay.create_executor("vm", made, tvm.cpu(), "llvm").evaluate()
        flags = {name: rng.random() < 0.5 for name in ("c0", "c1")}
        for turned in (False, True):  # so that each branch runs
            given = {
                name: _random_value(name, flags.get(name) != turned, rng) for name in maker.inputs
            }
            got = run(*given.values()).numpy()
            wanted = value(dict(given))
            if not np.allclose(got, wanted, rtol=1e-3, atol=1e-4):
                faults.append(f"{got.tolist()} instead of {wanted.tolist()}")
    except Exception:
        faults.append(traceback.format_exc())
    finally:
        for name in names:
            partition.unregister(name)
    return "\n".join(faults), any(each.calls for each in backends)


def _random_value(name: str, flag: bool, rng: random.Random) -> np.ndarray:
    """An input; a condition is the flag."""
    if name.startswith("c"):
        return np.array(flag)
    if name.startswith("n"):
        return np.array(rng.randrange(3), "int32")
    values = [[rng.uniform(-1, 1) for _ in range(SHAPE[1])] for _ in range(SHAPE[0])]
    return np.array(values, "float32")


def _partitioned(mod: tvm.IRModule, names: list[str], rng: random.Random) -> tvm.IRModule:
    door = rng.randrange(3)
    if door == 0:
        return partition.partition(mod, names)
    steps: list[Any] = []
    merge, outline = transform.MergeCompilerRegions(), transform.PartitionGraph()
    for each in [names] if door == 1 else names:
        steps += [transform.AnnotateTarget(each, rng.random() < 0.7)]
        steps += [merge] if rng.random() < 0.8 else []
        steps += [outline] if door == 1 or rng.random() < 0.6 else []
    return tvm.transform.Sequential([*steps, outline])(mod)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after that long")
    options = parser.parse_args()
    end, wrong, done, ran = time.monotonic() + options.seconds, 0, 0, 0
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() > end:
            break
        fault, is_run = check(seed)
        done, ran, wrong = done + 1, ran + is_run, wrong + bool(fault)
        if fault:
            print(f"seed {seed}: {fault}", flush=True)
        if done % 50 == 0:
            print(f"{done} programs, {ran} ran code of back ends, {wrong} wrong", flush=True)
    print(f"{done} programs, {ran} ran code of back ends, {wrong} wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
