"""`Symbol.optimize_for`: validation and meaning of its arguments, as in MXNet."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.backends import graph_pass, registered
from compiler.errors import PartitionError
from compiler.mxnet_format.attributes import DTYPES
from compiler.partition.explanation import show_summary

if TYPE_CHECKING:
    from .symbol import Symbol

logger = logging.getLogger("baton.partition")

_DEVICES = ("cpu", "gpu", "cuda", "cpu_pinned", "cpu_shared")
_STORAGE_TYPES = ("default", "undefined", "row_sparse", "csr")


def optimize_for(
    symbol: Symbol,
    backend: str,
    args: Mapping[str, Any] | None,
    aux: Mapping[str, Any] | None,
    ctx: Any,
    declared: Sequence[Mapping[str, Any] | None],
    skip_infer: bool,
    options: Mapping[str, Any],
) -> Symbol:
    """See `Symbol.optimize_for`; `declared` are shapes, dtypes and storage types by name."""
    from .partition import KnownValues, partition_symbol, rewrite_symbol

    if not isinstance(backend, str):
        raise PartitionError(f"backend is {backend!r}; give the name of a registered partitioner")
    _check_device(ctx)
    given_args = _arrays("args", args, symbol.list_arguments())
    given_aux = _arrays("aux", aux, symbol.list_auxiliary_states())
    shape_dict, type_dict, stype_dict = declared
    shapes = {name: _shape(name, shape) for name, shape in (shape_dict or {}).items()}
    dtypes = {name: _dtype(name, dtype) for name, dtype in (type_dict or {}).items()}
    for name, storage in (stype_dict or {}).items():
        if storage not in _STORAGE_TYPES:
            raise PartitionError(
                f"stype_dict[{name!r}] is {storage!r}; storage types are {_STORAGE_TYPES}"
            )
    if given_aux and not given_args and symbol.list_arguments():
        raise PartitionError(
            f"args is needed too: the symbol has {symbol.list_arguments()[0]!r}, of which it must "
            "have the value"
        )
    values = {**given_args, **given_aux}
    _check_declared(symbol, values)
    known = KnownValues(
        given_args,
        given_aux,
        {**shapes, **{name: value.shape for name, value in values.items()}},
        {**dtypes, **{name: str(value.dtype) for name, value in values.items()}},
        infer=bool(values) and not skip_infer,
    )
    chosen = graph_pass(backend)
    if chosen is None:
        done = partition_symbol(symbol, backend, known, options)
        show_summary(done)
        return done.module
    made, new_args, new_aux = rewrite_symbol(symbol, chosen, known, options)
    for what, given, new in (("args", args, new_args), ("aux", aux, new_aux)):
        read = [name for name in new if name in made.list_inputs()]
        if read and not isinstance(given, MutableMapping):
            raise PartitionError(
                f"graph pass {backend!r} adds {', '.join(read)}; give a dict as {what}, which gets "
                "them"
            )
    for given, new in ((args, new_args), (aux, new_aux)):
        if isinstance(given, MutableMapping):
            given.update(new)
    return made


def for_environment(symbol: Symbol, values: Mapping[str, Any]) -> Symbol:
    """The symbol, partitioned by the backend of MXNET_SUBGRAPH_BACKEND if that names one.

    `values`: of arguments and auxiliary states. A backend that is not registered, such as those
    that MXNet was built with, is left out with a warning.
    """
    backend = os.environ.get("MXNET_SUBGRAPH_BACKEND", "NONE")
    if backend in ("", "NONE"):
        return symbol
    if backend not in registered():
        logger.warning(
            "MXNET_SUBGRAPH_BACKEND=%s: no such backend is registered, the symbol is not "
            "partitioned; load its library first",
            backend,
        )
        return symbol
    states = set(symbol.list_auxiliary_states())
    args = {name: value for name, value in values.items() if name not in states}
    aux = {name: value for name, value in values.items() if name in states}
    return partition_values(symbol, backend, args, aux, {})


def partition_values(
    symbol: Symbol,
    backend: str,
    args: MutableMapping[str, Any],
    aux: MutableMapping[str, Any],
    options: Mapping[str, Any],
) -> Symbol:
    """`Symbol.optimize_for` with values, any options; passes add values to `args` and `aux`."""
    return optimize_for(symbol, backend, args, aux, None, (None, None, None), False, options)


def _arrays(what: str, given: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read-only numpy views of arrays; those that numpy can't view are copied."""
    if given is None:
        return {}
    if isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise PartitionError(
                f"{what} is a list of {len(given)} arrays; the symbol takes {len(names)}: "
                f"{', '.join(names)}"
            )
        given = dict(zip(names, given))
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
    name = ctx.partition("(")[0] if isinstance(ctx, str) else "cpu"
    is_device = ctx is None or isinstance(ctx, str)
    if not is_device and not any(
        hasattr(ctx, name) for name in ("device_type", "dlpack_device_type")
    ):
        raise PartitionError(f"ctx is {ctx!r}; give a device, the name of one, or None")
    if name not in _DEVICES:
        raise PartitionError(f"ctx is {ctx!r}; devices are {', '.join(_DEVICES)}")


def _check_declared(symbol: Symbol, values: Mapping[str, np.ndarray]) -> None:
    """Reject values that contradict the shape that a variable declares."""
    for node in symbol.graph.variables():
        value, declared = values.get(node.name), node.attrs.get("__shape__")
        if value is None or declared is None:
            continue
        shape = [int(size) for size in re.findall(r"-?\d+", declared)]
        fits = len(shape) == value.ndim and all(
            size in (extent, 0, -1) for size, extent in zip(shape, value.shape)
        )
        if shape and not fits:
            raise PartitionError(
                f"the value of {node.name!r} has the shape {value.shape}, but the symbol declares "
                f"{tuple(shape)}"
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
