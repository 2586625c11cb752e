"""`from_pytorch`: a TorchScript module or an exported program becomes a Relax module."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm

from compiler.errors import BatonError, FrontendError, UnsupportedOperatorError
from compiler.support.tempdir import TemporaryFolder

if TYPE_CHECKING:
    import onnx
    import torch

    from .extents import Input

_DTYPES = {
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
}


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[tuple[str, Any]] | None = None,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
    preserve_pytorch_scopes: bool = False,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Import a PyTorch program as a Relax module.

    The program is replayed operator by operator under PyTorch's ONNX exporter, and what that
    records is imported as `from_onnx` does. Branches and loops that depend on shapes, weights and
    constants are decided while importing; those that depend on values of inputs are rejected.

    Parameters
    ----------
    script_module : torch.jit.ScriptModule, torch.jit.ScriptFunction or ExportedProgram
        Traced, scripted, loaded with `torch.jit.load`, or exported by `torch.export.export`.
    input_infos : list of (str, shape) or (str, (shape, dtype))
        Names, shapes and dtypes of the inputs, in order. For an argument that is a tuple or a
        list of tensors, a tuple or a list of shapes; its tensors are inputs `name_0`, `name_1`...
        An exported program knows its own, so that it needs none. Extents that it leaves open
        (`dynamic_shapes`) are symbols of the module: a string names one, a number closes it.
    custom_convert_map : dict of str to callable, optional
        Operator name ("aten::relu", "my::operator") to a function of the operands, expressions
        and Python values, and their dtypes, which returns an expression of Relay or Relax.
    default_dtype : str
        Dtype of inputs for which neither the program nor `input_infos` has one.
    use_parser_friendly_name : bool
        Parameters are named "layer_weight" instead of "layer.weight".
    keep_quantized_weight : bool
        Accepted; quantized weights are imported as the exporter stores them either way.
    export_renamed_c_graph_path : str, optional
        File to write the TorchScript graph to, with all its calls inlined and its values named
        by their operators, "aten::relu_0"; without a suffix, the folder for a file
        "tvm_exported_c_graph_<time>.txt".
    preserve_pytorch_scopes : bool
        Accepted; expressions are named by their operators.

    Returns
    -------
    mod : tvm.IRModule
        One function, `main`: the inputs in their order, then the weights. Nested results are
        one flat tuple, named by their keys ("scores", "hidden_0"), or "output0", "output1"...
        Dynamic extents have the names of the program's `Dim`s, unless it was saved since. Largest
        extents that the program gives are bounds, as `relay.with_bounds`.
    params : dict of str to tvm.runtime.Tensor
        The weights, by their names in the module's `state_dict`.

    Raises
    ------
    FrontendError
        PyTorch is missing, the inputs do not fit the program, or running it fails.
    UnsupportedOperatorError
        An operator can't be imported; it may be given in `custom_convert_map`. Or the program
        branches or loops by values of its inputs.
    """
    try:
        import torch
    except ImportError as error:
        raise FrontendError("from_pytorch needs PyTorch: pip install 'baton-tvm[torch]'") from error
    from compiler.ir.dynamic_shape import with_bounds
    from compiler.relay.relax_to_relay import ImportedModule
    from compiler.runtime.metadata import OUTPUT_NAMES

    from ..onnx import import_model
    from .call import Caller

    call = Caller(custom_convert_map or {})
    with torch.inference_mode(False):  # where a second write to a tensor can be told
        if isinstance(script_module, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
            replay, leaves = _of_script(script_module, input_infos, call, default_dtype)
            if export_renamed_c_graph_path is not None:
                _write_graph(replay.run.graph, Path(export_renamed_c_graph_path))
        elif isinstance(script_module, torch.export.ExportedProgram):
            replay, leaves = _of_program(script_module, input_infos, call)
        else:
            raise FrontendError(
                f"from_pytorch takes a traced or scripted module or an exported program, not "
                f"{type(script_module).__name__}; make one with torch.jit.trace(module, examples)"
            )
        model = _exported(replay, leaves, call, "_" if use_parser_friendly_name else ".")
    mod, params = import_model(model, {}, {}, None, False, call.converters(), short=True)
    mod["main"] = mod["main"].with_attr(OUTPUT_NAMES, replay.names)
    bounds = {name: most for each in _inputs(leaves) for name, most in each.bounds.items()}
    return ImportedModule(with_bounds(mod, bounds)), params


def _write_graph(graph: Any, path: Path) -> None:
    """Write a TorchScript graph whose values have the names of their operators."""
    graph = graph.copy()
    counts: dict[str, int] = {}

    def rename(block: Any) -> None:
        for node in block.nodes():
            for output in node.outputs():
                count = counts.setdefault(node.kind(), 0)
                counts[node.kind()] = count + 1
                output.setDebugName(f"{node.kind()}_{count}")
            for inner in node.blocks():
                rename(inner)

    rename(graph)
    if not path.suffix:
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"tvm_exported_c_graph_{time.strftime('%Y%m%d_%H%M%S')}.txt"
    path.write_text(str(graph))


def get_graph_input_names(script_module: torch.jit.ScriptModule) -> list[str]:
    """The names that a TorchScript module gives its inputs, in order."""
    first, *inputs = script_module.graph.inputs()  # the first is the module itself
    del first
    return [value.debugName() for value in inputs]


def _of_script(
    script: Any, infos: Sequence[tuple[str, Any]] | None, call: Any, default_dtype: str
) -> tuple[Any, list[Any]]:
    """A replay of TorchScript, and its inputs."""
    import torch
    from torch.utils import _pytree

    from .retrace import Replay, ScriptInterpreter

    run = ScriptInterpreter(script, call)
    given = infos or ()
    left_out = run.declared[len(given) :]
    if len(given) > len(run.arguments) or not all(
        argument.has_default_value() for argument in left_out
    ):
        raise FrontendError(
            f"the TorchScript program has {len(run.arguments)} inputs, but input_infos names "
            f"{len(given)}; pass a list of (name, shape), one for each"
        )
    arguments: list[Any] = []
    for info, argument in zip(given, run.arguments):
        name, shape, dtype = _read_info(info)
        arguments.append(_argument(name, shape, dtype, argument.type(), default_dtype))
    arguments += [argument.default_value for argument in left_out]
    leaves, structure = _pytree.tree_flatten(tuple(arguments))
    holder = script if isinstance(script, torch.nn.Module) else torch.nn.Module()
    return Replay(holder, run, structure), leaves


def _of_program(
    program: torch.export.ExportedProgram, infos: Sequence[tuple[str, Any]] | None, call: Any
) -> tuple[Any, list[Any]]:
    """A replay of an exported program, and its inputs."""
    import torch
    from torch.utils import _pytree

    from .extents import open_inputs
    from .retrace import ProgramInterpreter, Replay

    known = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    slots = [
        (spec.arg, known.get(getattr(spec.arg, "name", "")))
        for spec in program.graph_signature.input_specs
        if spec.kind.name == "USER_INPUT"
    ]
    tensors = [
        (str(argument.name), node.meta["val"])
        for argument, node in slots
        if node is not None and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    if infos is not None and len(infos) != len(tensors):
        raise FrontendError(
            f"the exported program has {len(tensors)} inputs ({', '.join(n for n, _ in tensors)}), "
            f"but input_infos has {len(infos)}"
        )
    given = [_read_info(info) for info in infos or [(name, None) for name, _ in tensors]]
    named = {name: value for (name, *_), (_, value) in zip(given, tensors)}
    inputs = open_inputs(program, named, [shape for _, shape, *_ in given])
    checks = {"check_guards": False} if "check_guards" in _parameters(program.module) else {}
    module = program.module(**checks)
    interpreter = ProgramInterpreter(module, call)
    is_tensor = [node is not None and node.name in dict(tensors) for _, node in slots]
    constants = [getattr(argument, "value", None) for argument, _ in slots]

    def run(*leaves: torch.Tensor) -> Any:
        rest = iter(leaves)
        return interpreter.run(
            *(next(rest) if tensor else value for tensor, value in zip(is_tensor, constants))
        )

    return Replay(module, run, _pytree.tree_flatten(tuple(inputs))[1]), inputs


def _read_info(info: Any) -> tuple[str, Any, str | None]:
    """Name, shape and dtype of one of `input_infos`."""
    if not isinstance(info, (tuple, list)) or len(info) != 2 or not isinstance(info[0], str):
        raise FrontendError(
            f"input_infos has {info!r}; each is (name, shape) or (name, (shape, dtype))"
        )
    name, shape = info
    if isinstance(shape, (tuple, list)) and len(shape) == 2:
        extents, last = shape
        if isinstance(extents, (tuple, list)) and not isinstance(last, (tuple, list)):
            return name, extents, str(last)
    return name, shape, None


def _argument(name: str, shape: Any, dtype: str | None, declared: Any, default: str) -> Any:
    """One argument, an input or a tuple or list of them."""
    from .extents import Input

    if declared.kind() == "OptionalType":
        declared = declared.getElementType()
    if declared.kind() in ("TupleType", "ListType"):
        types = declared.elements() if declared.kind() == "TupleType" else None
        if not isinstance(shape, (tuple, list)) or (types and len(types) != len(shape)):
            raise FrontendError(f"input {name!r} is {declared}; pass one shape for each tensor")
        fields = [
            _argument(
                f"{name}_{index}",
                field,
                dtype,
                types[index] if types else declared.getElementType(),
                default,
            )
            for index, field in enumerate(shape)
        ]
        return tuple(fields) if types else fields
    if declared.kind() != "TensorType":
        raise UnsupportedOperatorError(
            f"input {name!r} is {declared}; only tensors and tuples and lists of them are inputs"
        )
    try:
        extents = tuple(int(extent) for extent in shape)
    except (TypeError, ValueError) as error:
        raise FrontendError(f"input {name!r}: {shape!r} is not a shape of integers") from error
    sizes = declared.sizes()
    if (declared.dim() is not None and declared.dim() != len(extents)) or (
        sizes is not None and tuple(sizes) != extents
    ):
        raise FrontendError(
            f"input_infos gives input {name!r} the shape {extents}; it was traced for "
            f"{tuple(sizes) if sizes is not None else f'{declared.dim()} dimensions'}"
        )
    wanted = declared.scalarType() or dtype or default
    return Input.closed(name, extents, _torch_dtype(name, wanted))


def _torch_dtype(name: str, dtype: str) -> torch.dtype:
    import torch

    plain = str(dtype).removeprefix("torch.").lower()
    found = getattr(torch, _DTYPES.get(plain, plain), None)
    if not isinstance(found, torch.dtype):
        raise FrontendError(f"input {name!r} has the dtype {dtype!r}, which PyTorch does not know")
    return found


def _exported(replay: Any, leaves: Sequence[Any], call: Any, separator: str) -> onnx.ModelProto:
    """Export the program with weights named as in the program.

    A program with open extents is recorded for two examples of them. Wherever the records differ,
    a number of the example would have become a constant.
    """
    models = []
    for which in (0, 1) if any(each.axes for each in _inputs(leaves)) else (0,):
        call.begin()
        with TemporaryFolder("pytorch") as folder:
            path = Path(folder) / "model.onnx"
            _export(replay, leaves, which, path)
            models.append(_with_own_names(path, separator))
    for one, other in zip(models[0].graph.node, models[-1].graph.node):
        if one.SerializeToString() != other.SerializeToString():
            raise UnsupportedOperatorError(
                f"an operator ({one.op_type}) works on a number that the program computes from "
                f"open extents ({_shown(leaves, 0)}), and the export would keep the example's; "
                "give the extents numbers: input_infos=[(name, shape), ...]"
            )
    return models[0]


def _inputs(leaves: Sequence[Any]) -> list[Input]:
    from .extents import Input

    return [leaf for leaf in leaves if isinstance(leaf, Input)]


def _export(replay: Any, leaves: Sequence[Any], which: int, path: Path) -> None:
    import torch

    from .call import OPSET
    from .extents import Input

    examples = [leaf.example(which) if isinstance(leaf, Input) else leaf for leaf in leaves]
    inputs = _inputs(leaves)
    # PyTorch 2.9 made another exporter the default, which takes no TorchScript.
    exporter = {"dynamo": False} if "dynamo" in _parameters(torch.onnx.export) else {}
    try:
        with warnings.catch_warnings():
            # Numbers that are not open extents become constants, as they should.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                replay,
                tuple(examples),
                str(path),
                input_names=[each.name for each in inputs],
                dynamic_axes={each.name: each.axes for each in inputs if each.axes},
                opset_version=OPSET,
                # Weights stay as they are, and batch norms operators.
                do_constant_folding=False,
                training=torch.onnx.TrainingMode.PRESERVE,
                **exporter,
            )
    except BatonError:
        raise
    except torch.onnx.errors.OnnxExporterError as error:
        raise UnsupportedOperatorError(
            f"the PyTorch program can't be imported: {_first_line(error)}; an operator that is "
            "unknown can be given in custom_convert_map"
        ) from error
    except Exception as error:
        # Running a program for inputs that it was not made for fails in any of PyTorch's ways.
        raise FrontendError(
            f"the PyTorch program can't be replayed for {_shown(leaves, which)}: "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from error


def _parameters(function: Callable[..., Any]) -> Any:
    return inspect.signature(function).parameters


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shown(leaves: Sequence[Any], which: int) -> str:
    return ", ".join(f"{each.name}: {each.examples[which]}" for each in _inputs(leaves))


def _with_own_names(path: Path, separator: str) -> onnx.ModelProto:
    """The exported model, its weights named as in the program, its nodes by their operators."""
    import onnx

    from .retrace import Replay

    model = onnx.load(str(path))
    names = {
        tensor.name: tensor.name.removeprefix(Replay.PREFIX).replace(".", separator)
        for tensor in model.graph.initializer
        if tensor.name.startswith(Replay.PREFIX)
    }
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in model.graph.node:
        node.name = node.name.split("/")[1] if node.name.startswith("/") else node.name
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = names[name]
    return model
