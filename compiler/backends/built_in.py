"""The built-in partitioners: `default`, `llvm`, `cuda`, those of CPU engines, and NVIDIA's.

`default` is MXNet's: it claims the operators that its option `op_names` lists and leaves their
subgraphs to the build. The others take the option `ops`, the operators to claim, separated by
commas. `llvm` and `cuda` claim every operator without it and have their subgraphs compiled for the
CPU or the GPU; the option `target` says for which one. `onnxruntime` and `openvino` claim what can
be expressed in ONNX and run it there; `onednn` claims the part of it that oneDNN has operators for.
`cublaslt` and `cudnn` are those of `nvidia`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from compiler.errors import PartitionError

from .graph import VARIABLE
from .nvidia import register_nvidia
from .reasons import Unsupported
from .registry import Compile, Options, Strategy, register

if TYPE_CHECKING:
    import numpy as np
    from tvm import IRModule

logger = logging.getLogger("baton.partition")

Attrs = Mapping[str, Any]
Claims = Callable[[str, Attrs, "list[Attrs]"], Literal[True] | Unsupported]
"""Called with an operator, its attributes, and those of the nodes that feed it."""


def register_built_in() -> None:
    """Register them; once, when the package is imported."""
    named = Strategy("named", _claim_named, None, "_CachedOp")
    register("default", named, check_options=_check_named, options=["op_names"])
    for name in ("llvm", "cuda"):
        strategy = Strategy("all", _claiming(_any), _for_target(name), f"_{name}_subgraph")
        register(name, strategy, check_options=_check_target, options=["ops", "target"])
    for name, check, further in (
        ("onnxruntime", check_ops, []),
        ("openvino", _check_threads, ["threads"]),
        ("onednn", _check_threads, ["threads"]),
    ):
        claims = _for_onednn if name == "onednn" else _expressible
        register(
            name,
            Strategy("expressible", _claiming(claims), _computes, f"_{name}_subgraph"),
            check_options=check,
            compile=_compiling(name),
            compiles_relax=True,
            options=["ops", *further],
        )
    register_nvidia()


def _named(options: Options) -> set[str]:
    """The operators of `op_names`, a list in any spelling."""
    return set(re.findall(r"[\w.]+", options.get("op_names", "")))


def _claim_named(graph_json: str, ids: list[Any], options: Options) -> None:
    wanted = ",".join(_named(options))
    _claiming(_any)(graph_json, ids, {**options, "ops": wanted})


def _check_named(options: Options) -> str | None:
    if _named(options):
        return check_ops({"ops": ",".join(_named(options))})
    if options.get("op_names", "[]").strip("[]() "):
        return f"op_names is {options['op_names']!r}; give op_names='exp,sin' or a list of names"
    logger.warning("'default' selects the operators of its option op_names; none is given")
    return None


def check_ops(options: Options) -> str | None:
    """Return the error in the option `ops`, a list of operator names; None if it is valid."""
    for name in options.get("ops", "nn.dense").split(","):
        if not re.fullmatch(r"[A-Za-z_][\w.]*", name.strip()):
            return f"ops has {name.strip()!r}; give names of operators, separated by commas"
    return None


def _claiming(claims: Claims) -> Callable[[str, list[Any], Options], None]:
    def supported_ops(graph_json: str, ids: list[Any], options: Options) -> None:
        wanted = {name.strip() for name in options["ops"].split(",")} if "ops" in options else None
        nodes = json.loads(graph_json)["nodes"]
        _check_case(wanted or set(), {node["op"] for node in nodes})
        for index, node in enumerate(nodes):
            op = node["op"]
            if op == VARIABLE or node.get("subgraphs") or "baton.backend" in node.get("attrs", {}):
                continue
            if wanted is not None and op not in wanted:
                ids[index] = Unsupported(f"the options do not name {op}")
                continue
            feeding = [nodes[each[0]].get("attrs", {}) for each in node["inputs"]]
            answer = claims(op, node.get("attrs", {}), feeding)
            ids[index] = answer if isinstance(answer, Unsupported) else -1

    return supported_ops


def _check_case(wanted: set[str], present: set[str]) -> None:
    """Reject a name that the graph has in other letters only, which would select nothing."""
    for name in sorted(wanted - present):
        for op in sorted(present - wanted):
            if op.lower() == name.lower():
                raise PartitionError(f"no operator is named {name!r}; did you mean {op!r}?")


def _any(op: str, attrs: Attrs, feeding: list[Attrs]) -> Literal[True]:
    return True


def _expressible(op: str, attrs: Attrs, feeding: list[Attrs]) -> Literal[True] | Unsupported:
    from .onnx_export import why_inexpressible

    reason = why_inexpressible(op, attrs)
    return Unsupported(reason) if reason else True


def _for_onednn(op: str, attrs: Attrs, feeding: list[Attrs]) -> Literal[True] | Unsupported:
    from .onednn import why_unsupported

    answer = _expressible(op, attrs, feeding)
    reason = why_unsupported(op, attrs, feeding)
    return answer if isinstance(answer, Unsupported) or not reason else Unsupported(reason)


def _computes(
    graph_json: str, number: int, options: Options, *_: object
) -> Literal[True] | Unsupported:
    """Whether a subgraph does more than move data, or `ops` asks for that."""
    from compiler.ir.op_facts import facts_in_relay, facts_named

    ops = {node["op"] for node in json.loads(graph_json)["nodes"]} - {VARIABLE}
    moving = {op for op in ops if facts_in_relay(op).keeps_values or facts_named(op).keeps_values}
    if "ops" in options or ops - moving:
        return True
    return Unsupported("it only moves data")


def _for_target(kind: str) -> Callable[..., bool]:
    def review(
        graph_json: str,
        number: int,
        options: Options,
        attrs: dict[str, str],
        args: Mapping[str, np.ndarray],
        aux: Mapping[str, np.ndarray],
    ) -> bool:
        attrs["target"] = options.get("target", kind)
        return True

    return review


def _check_target(options: Options) -> str | None:
    from compiler.errors import TargetError
    from compiler.target import parse

    if "target" in options:
        try:
            parse(options["target"])
        except TargetError as error:
            return str(error)
    return check_ops(options)


def _check_threads(options: Options) -> str | None:
    threads = options.get("threads", "1")
    if not threads.isdecimal() or not int(threads):
        return f"threads is {threads!r}; give a whole number above 0"
    return check_ops(options)


def _compiling(engine: str) -> Compile:
    """Compile a subgraph, exported to ONNX, for onnxruntime, OpenVINO or oneDNN."""

    def compile_subgraph(
        subgraph: IRModule, params: Mapping[str, np.ndarray], options: Options
    ) -> Any:
        from compiler.runtime import foreign

        from .onednn import describe
        from .onnx_export import to_onnx

        model = to_onnx(subgraph, params)
        header: dict[str, Any] = {}
        if engine == "onednn":
            header, data = describe(model)
        else:
            data = model.SerializeToString()
        if engine != "onnxruntime":
            data = foreign.with_header({"threads": int(options.get("threads", 0)), **header}, data)
        code = foreign.ExternalCode(engine, data)
        foreign.load(code)  # what the engine rejects is a compile error
        return code

    return compile_subgraph
