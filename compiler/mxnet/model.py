"""`mx.model`: checkpoints, a symbol's file and its parameters'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.mxnet_format.params import save_params
from compiler.relay.frontend.mxnet import host_array

from .symbol import Symbol, load_checkpoint, load_params

__all__ = ["load_checkpoint", "load_params", "save_checkpoint"]


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any] | None = None,
    remove_amp_cast: bool = True,
) -> None:
    """Write `<prefix>-symbol.json`, if there is a symbol, and `<prefix>-<epoch>.params`.

    Parameters
    ----------
    prefix : str
    epoch : int
        Written with four digits.
    symbol : Symbol, optional
    arg_params, aux_params : mapping of str to array
    remove_amp_cast : bool
        Without effect: symbols keep their operators.

    Raises
    ------
    ExportError
        A file can't be written.
    """
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json")
    arrays = {f"arg:{name}": host_array(value) for name, value in arg_params.items()}
    arrays |= {f"aux:{name}": host_array(value) for name, value in (aux_params or {}).items()}
    save_params(f"{prefix}-{epoch:04d}.params", arrays, "list")
