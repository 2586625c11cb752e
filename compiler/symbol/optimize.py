"""`Symbol.optimize_for`: what its arguments mean and which it refuses, as in MXNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import PartitionError
from compiler.mxnet.attributes import DTYPES

if TYPE_CHECKING:
    from .symbol import Symbol

_STORAGE_TYPES = ("default", "undefined", "row_sparse", "csr")


def optimize_for(
    symbol: Symbol,
    backend: str,
    args: Mapping[str, Any] | None,
    aux: Mapping[str, Any] | None,
    ctx: Any,
    shape_dict: Mapping[str, Any] | None,
    type_dict: Mapping[str, Any] | None,
    stype_dict: Mapping[str, str] | None,
    skip_infer: bool,
    options: Mapping[str, Any],
) -> Symbol:
    """See `Symbol.optimize_for`."""
    from .partition import KnownValues, partition_symbol

    if not isinstance(backend, str):
        raise PartitionError(f"backend is {backend!r}; give the name of a registered partitioner")
    _check_device(ctx)
    given_args, given_aux = _arrays("args", args), _arrays("aux", aux)
    shapes = {name: _shape(name, shape) for name, shape in (shape_dict or {}).items()}
    dtypes = {name: _dtype(name, dtype) for name, dtype in (type_dict or {}).items()}
    for name, storage in (stype_dict or {}).items():
        if storage not in _STORAGE_TYPES:
            raise PartitionError(
                f"stype_dict[{name!r}] is {storage!r}; storage types are {_STORAGE_TYPES}"
            )
    _check_complete(symbol, given_args, given_aux)
    values = {**given_args, **given_aux}
    known = KnownValues(
        given_args,
        given_aux,
        {**shapes, **{name: value.shape for name, value in values.items()}},
        {**dtypes, **{name: str(value.dtype) for name, value in values.items()}},
        infer=bool(values) and not skip_infer,
    )
    return partition_symbol(symbol, backend, known, **options).symbol


def _arrays(what: str, given: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """Read-only numpy views of arrays; those that numpy can't view are copied."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PartitionError(f"{what} is a {type(given).__name__}; give a dict of name to array")
    return {name: _view(f"{what}[{name!r}]", value) for name, value in given.items()}


def _view(where: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        view = value.view()
    elif hasattr(value, "__dlpack__"):
        try:
            view = np.from_dlpack(value).view()
        except (BufferError, RuntimeError, TypeError):  # no type of numpy's, or on a device
            view = np.asarray(value.numpy())
    elif hasattr(value, "asnumpy"):
        view = np.asarray(value.asnumpy())
    else:
        raise PartitionError(f"{where} is a {type(value).__name__}, no array")
    view.flags.writeable = False
    return view


def _check_device(ctx: Any) -> None:
    is_device = ctx is None or isinstance(ctx, str)
    if not is_device and not any(
        hasattr(ctx, name) for name in ("device_type", "dlpack_device_type")
    ):
        raise PartitionError(f"ctx is {ctx!r}; give a device, the name of one, or None")


def _check_complete(
    symbol: Symbol, args: Mapping[str, np.ndarray], aux: Mapping[str, np.ndarray]
) -> None:
    """Refuse values of one kind without any of the other, if the symbol has both."""
    if bool(args) == bool(aux):
        return
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    for given, other, missing, what in ((args, aux, states, "aux"), (aux, args, arguments, "args")):
        if given and not other and missing:
            raise PartitionError(
                f"{what} is needed too: the symbol has {missing[0]!r}, of which it must have the "
                "value"
            )


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    sizes = isinstance(shape, (tuple, list)) and all(
        isinstance(size, (int, np.integer)) and not isinstance(size, bool) for size in shape
    )
    if not sizes:
        raise PartitionError(f"shape_dict[{name!r}] is {shape!r}; give a tuple of sizes")
    return tuple(int(size) for size in shape)


def _dtype(name: str, dtype: Any) -> str:
    try:
        found = str(np.dtype(dtype))
    except TypeError as error:
        raise PartitionError(f"type_dict[{name!r}] is {dtype!r}, no dtype") from error
    if found not in DTYPES:
        raise PartitionError(f"type_dict[{name!r}] is {found}; known are {DTYPES}")
    return found
