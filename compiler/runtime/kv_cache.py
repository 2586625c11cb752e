"""The keys and values of a text, to which each run of a decoder adds rows in place.

cache = module.make_kv_cache()
module.use_kv_cache(cache)
module.run(ids=prompt)
module.run(ids=token)        # 1 row more
cache.truncate(len(prompt))  # back to the prompt
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from compiler.errors import InputError
from compiler.runtime.metadata import KVCacheInfo, Metadata, TensorInfo
from compiler.tvm_workarounds.fast_import import tvm


class KVCache:
    """Buffers with room for the rows of one text, and how many rows are there.

    It belongs to whoever made it, and may be used by any executor or session of the same library.
    Runs with one cache are done one after the other; a run that fails counts no rows.

    `metadata`: of the library. `device`: where the library takes its inputs. `room`: the most rows
    that there may be. `tensors`: the buffers, by the names of the inputs. `lock`: held while a run
    adds rows.
    Raises InputError: the library keeps no cache.
    """

    def __init__(self, metadata: Metadata, device: Any) -> None:
        self.info = cache_of(metadata)
        self._metadata = metadata
        infos = {info.name: info for info in metadata.inputs}
        self.tensors = {
            name: tvm.runtime.empty(infos[name].static_shape, infos[name].dtype, device)
            for name, _ in self.info.tensors
        }
        self._axes = dict(self.info.tensors)
        name, axis = self.info.tensors[0]
        self.room = int(infos[name].static_shape[axis])
        self.lock = threading.Lock()
        self._length = 0

    @property
    def length(self) -> int:
        """Rows that are there."""
        return self._length

    def __getitem__(self, name: str) -> np.ndarray:
        """The rows of a buffer on the CPU, as a read-only view.

        Later runs leave these rows as they are, unless the cache is truncated before.

        Raises InputError: there is no such buffer.
        """
        if name not in self.tensors:
            raise InputError(f"the cache has no {name!r}; it has {', '.join(self.tensors)}")
        rows = (slice(None),) * self._axes[name] + (slice(self._length),)
        view = np.from_dlpack(self.tensors[name])[rows]
        view.flags.writeable = False
        return view

    def truncate(self, length: int) -> None:
        """Forget all rows from `length` on. Raises InputError: there are not as many."""
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise InputError(f"a length is an integer of at least 0, not {length!r:.60}")
        if length > self._length:
            raise InputError(f"the cache has {self._length} rows, so it can't keep {length}")
        self._length = length

    def copy(self) -> KVCache:
        """An independent copy with the same rows, to continue differently."""
        other = KVCache(self._metadata, next(iter(self.tensors.values())).device)
        for name, tensor in self.tensors.items():
            tensor.copyto(other.tensors[name])
        other._length = self._length
        return other

    def require_fits(self, metadata: Metadata) -> None:
        """Raise InputError unless the cache is one for a library."""
        own = [_buffers(each) for each in (self._metadata, metadata)]
        if self.info != metadata.kv_cache or own[0] != own[1]:
            raise InputError(
                "the cache was made for a library with other inputs; use one that make_kv_cache() "
                "of this library made"
            )

    def require_room(self, rows: int) -> None:
        """Raise InputError unless there is room for that many more rows."""
        if self._length + rows > self.room:
            name, axis = self.info.tensors[0]
            raise InputError(
                f"input {name!r} has room for {self.room} rows, {self.info.symbol!r}, along axis "
                f"{axis}; {self._length} are there, and {rows} more came: truncate the cache, or "
                "build the library with more room"
            )

    def note_run(self, rows: int) -> None:
        """Count the rows that a run has added."""
        self._length += rows


def cache_of(metadata: Metadata) -> KVCacheInfo:
    """Description of a library's cache, from its metadata. Raises InputError: it keeps none."""
    if metadata.kv_cache is None:
        raise InputError(
            f"library {metadata.mod_name!r} keeps no cache; build it from "
            "relay.with_kv_cache(mod, symbol, room), or with --kv-cache SYMBOL=ROOM"
        )
    return metadata.kv_cache


def _buffers(metadata: Metadata) -> list[TensorInfo]:
    names = {name for name, _ in metadata.kv_cache.tensors} if metadata.kv_cache else set()
    return [info for info in metadata.inputs if info.name in names]
