"""Reading a model file of any kind that Baton imports, with its weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import FrontendError
from compiler.support.regular_files import open_regular, os_errors_as, read_regular, stand_in

if TYPE_CHECKING:
    import tvm

_SYMBOL = "-symbol.json"
_TORCH = (".pt", ".pth", ".pt2")


def read_model(
    path: Path,
    shapes: Mapping[str, tuple[int | str | None, ...]],
    trust: bool = False,
    import_limits: Mapping[str, float] | None = None,
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Import a model file as a Relax module and its weights by name.

    Parameters
    ----------
    path : Path
        * `NAME-symbol.json`: an MXNet symbol; its weights are `NAME-<epoch>.params` beside it.
        * `NAME-<epoch>.params`: the same model with the weights of that epoch.
        * `.relay` or `.txt`: Relay text; `.json`: a module that TVM 0.6 to 0.18 saved. Weights are
          in a file of the same name with the ending `.params`, if there is one.
        * `.tflite`: TensorFlow Lite.
        * `.pt`: TorchScript; `shapes` has all inputs.
        * anything else: ONNX.
    shapes : mapping of str to tuple
        Shapes of inputs with dynamic shapes. ONNX models may have names, or None, for dynamic
        extents.
    trust : bool
        Whether a `.json` may hold kernels and calls of functions by name, which can run any code.
    import_limits : mapping of str to number, optional
        Fields of `ImportLimits`, for ONNX models.

    Raises
    ------
    FrontendError
        A file is missing, damaged or of another kind, or can't be imported.
    """
    from compiler import relay

    _require_content(path)
    if path.name.endswith(_SYMBOL) or path.suffix == ".params":
        return _read_mxnet(path, _numbers(path, shapes))
    if path.suffix == ".tflite":
        return relay.frontend.from_tflite(str(path), _numbers(path, shapes))
    if path.suffix in _TORCH:
        return _read_torchscript(path, _numbers(path, shapes))
    if _is_onnx(path):
        limits = relay.frontend.ImportLimits(**(import_limits or {}))
        return relay.frontend.from_onnx(str(path), shape=shapes, freeze_params=False, limits=limits)
    if shapes:
        raise FrontendError(
            f"{path} states the shapes of its inputs; leave out {', '.join(sorted(shapes))}"
        )
    text = _text(path)
    mod = (
        relay.load_json(text, str(path), allow_code=trust)
        if path.suffix == ".json"
        else relay.parse(text, str(path))
    )
    if "main" not in [gvar.name_hint for gvar in getattr(mod, "get_global_vars", list)()]:
        raise FrontendError(f"{path} holds no function main, so it is not a model")
    weights = path.with_suffix(".params")
    return mod, relay.load_param_dict(_bytes(weights)) if weights.is_file() else {}


def _require_content(path: Path) -> None:
    """Raise FrontendError for a library, a Git LFS pointer or an HTML page.

    Readers report files that are missing, or damaged.
    """
    if path.suffix in (".so", ".tar"):
        raise FrontendError(
            f"{path} is a library, and a model file is needed; `baton run`, `baton profile` and "
            "`baton info` take libraries"
        )
    with contextlib.suppress(OSError), open_regular(path) as file:
        if kind := stand_in(file.read(64)):
            raise FrontendError(f"{path} is not a model: it is {kind}")


def with_extents(
    path: Path, shapes: Mapping[str, tuple[int | str | None, ...]], extents: Mapping[str, int]
) -> Mapping[str, tuple[int | str | None, ...]]:
    """Shapes of a model's inputs with numbers for the dynamic extents of these names.

    Raises FrontendError: the model has no such dynamic extent, or can't be read.
    """
    from compiler.relay.frontend.onnx.model import load_model, resolve_inputs

    if not extents:
        return shapes
    inputs = resolve_inputs(load_model(path).proto.graph, shapes, {}) if _is_onnx(path) else []
    known = {extent for entry in inputs for extent in entry.shape if isinstance(extent, str)}
    for name in extents:
        if name not in known:
            raise FrontendError(
                f"--extent {name}: {path} has no dynamic dimension {name!r}; its dynamic "
                f"dimensions are: {', '.join(sorted(known)) or 'none'}"
            )
    found = {
        entry.name: tuple(extents.get(str(extent), extent) for extent in entry.shape)
        for entry in inputs
        if not entry.sequence
    }
    return {**shapes, **found}


def _is_onnx(path: Path) -> bool:
    others = (".params", ".tflite", *_TORCH, ".relay", ".txt", ".json")
    return not path.name.endswith(_SYMBOL) and path.suffix not in others


def _read_torchscript(
    path: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tvm.IRModule, dict[str, Any]]:
    from compiler import relay

    try:
        import torch
    except ImportError as error:
        raise FrontendError(f"{path} needs PyTorch: pip install 'baton-tvm[torch]'") from error
    if path.suffix == ".pt2":
        raise FrontendError(
            f"{path}: PyTorch unpickles what torch.export.save wrote, which may run anything; load "
            "what you trust with torch.export.load, and give it to relay.frontend.from_pytorch"
        )
    if not path.is_file():
        raise FrontendError(f"{path} does not exist or is not a file")
    try:
        script = torch.jit.load(path, map_location="cpu").eval()
    except (RuntimeError, ValueError) as error:
        raise FrontendError(
            f"{path} is not TorchScript, or is damaged; torch.jit.save writes such files"
        ) from error
    names = [argument.name for argument in script.forward.schema.arguments[1:]]
    missing = [name for name in names if name not in shapes]
    if missing or len(shapes) > len(names):
        raise FrontendError(
            f"TorchScript states no shapes: give those of {', '.join(names)} by --shape "
            f"{(missing or names)[0]}=1,3,224,224"
        )
    return relay.frontend.from_pytorch(script, [(name, shapes[name]) for name in names])


def _numbers(
    path: Path, shapes: Mapping[str, tuple[int | str | None, ...]]
) -> dict[str, tuple[int, ...]]:
    """Shapes for a reader that takes numbers alone."""
    found = {}
    for name, shape in shapes.items():
        numbers = tuple(extent for extent in shape if isinstance(extent, int))
        if len(numbers) != len(shape):
            raise FrontendError(
                f"{path}: the shape of {name!r} must be numbers; only ONNX models take names and ? "
                "for dynamic extents"
            )
        found[name] = numbers
    return found


def _read_mxnet(
    path: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tvm.IRModule, dict[str, Any]]:
    from compiler import relay
    from compiler.mxnet.symbol import Symbol, load_params
    from compiler.mxnet_format.params import split_prefixes

    weights: Path | None = path
    if path.suffix == ".params":
        symbol = path.with_name(path.stem.rpartition("-")[0] + _SYMBOL)
        if not symbol.is_file():
            raise FrontendError(f"{path} needs the symbol that it belongs to, {symbol}")
    else:
        symbol = path
        stem = path.name.removesuffix(_SYMBOL)
        found = sorted(each for each in path.parent.iterdir() if _is_of(each, stem))
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise FrontendError(f"{path} has weights of several epochs; name one of {names}")
        weights = found[0] if found else None
    values: Any = load_params(weights) if weights else {}
    if not isinstance(values, Mapping):
        raise FrontendError(f"{weights} has no names, so it holds no weights of a model")
    arguments, states = split_prefixes(values)
    return relay.frontend.from_mxnet(
        Symbol.load(symbol), dict(shapes), arg_params=arguments, aux_params=states
    )


def _is_of(path: Path, stem: str) -> bool:
    """Whether a file holds weights of the symbol of that stem: `<stem>-<epoch>.params`."""
    before, _, epoch = path.stem.rpartition("-")
    return path.suffix == ".params" and before == stem and epoch.isdecimal()


def _bytes(path: Path) -> bytes:
    with os_errors_as(FrontendError, f"can't read {path}"):
        return read_regular(path)


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FrontendError(f"{path} is not text: byte {error.start} is not UTF-8") from error
