"""KV cache of a module: which inputs are buffers, and their row capacity."""

from __future__ import annotations

import json
from dataclasses import asdict

import tvm
from tvm import relax

from ..runtime.metadata import KVCacheInfo
from . import dynamic_shape
from .rewrite import with_functions

ASKED = "baton.kv_cache_asked"
"""Attribute of `main`: the symbol that counts rows, and how many there is room for."""
KEPT = "baton.kv_cache"
"""Attribute of a `main` that keeps the cache: its `KVCacheInfo` as JSON."""


def with_kv_cache(mod: tvm.IRModule, symbol: str, room: int) -> tvm.IRModule:
    """Make the library of a decoder append new keys and values to its cache in place.

    A result that concatenates an input and new rows is no longer returned, and the input becomes
    a buffer of a `compiler.runtime.kv_cache.KVCache`.

    Parameters
    ----------
    mod : tvm.IRModule
    symbol : str
        The name of the extent that counts the rows that such inputs have.
    room : int
        Capacity in rows, including those of the last run.

    Raises
    ------
    BuildError
        `main` has no such symbol, or the room is not a positive integer.
    """
    bounded = dynamic_shape.with_bounds(mod, {symbol: room})
    main = bounded["main"].with_attr(ASKED, {symbol: int(room)})
    return with_functions(bounded, {bounded.get_global_var("main"): main})


def asked(main: relax.Function) -> tuple[str, int] | None:
    """Symbol and row capacity given to `with_kv_cache`; None if it was not called."""
    for name, room in (main.attrs or {}).get(ASKED, {}).items():
        return str(name), int(room)
    return None


def as_attribute(info: KVCacheInfo) -> str:
    """The attribute `KEPT`."""
    return json.dumps(asdict(info))


def kept(main: relax.Function) -> KVCacheInfo | None:
    """The cache that a function keeps."""
    text = (main.attrs or {}).get(KEPT)
    if text is None:
        return None
    item = json.loads(str(text))
    return KVCacheInfo(**{**item, "tensors": tuple(map(tuple, item["tensors"]))})
