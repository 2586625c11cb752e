"""`DynamicOp`: a traced symbol with operators whose results' shapes depend on values.

What lies between these operators runs compiled, for the shapes that it meets, and they themselves
on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.mxnet.symbol.dynamic_pieces import Piece, cut_pieces, run_pieces
from compiler.mxnet.symbol.symbol import Symbol

from ..array.ndarray import ndarray
from ..array.program import Flags
from ..array.wrap import from_host
from .cached_op import CachedOp, CacheInfo
from .parameter import Parameter


class DynamicOp:
    """A symbol with dynamic operators that is called on arrays; see `CachedOp`.

    * `parts`: what lies between the dynamic operators, in the order in which it runs.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str],
        params: Mapping[str, Parameter],
        flags: Flags,
    ) -> None:
        self.symbol, self.flags = symbol, flags
        self.data_names = list(data_names)
        self._pieces, self._results = cut_pieces(symbol, whole=flags.partition_if_dynamic)
        read = set(symbol.list_inputs())
        self._params = {name: param for name, param in params.items() if name in read}
        self._ops = [self._compiled(piece) for piece in self._pieces]

    @property
    def parts(self) -> list[CachedOp]:
        return [op for op in self._ops if op is not None]

    def _compiled(self, piece: Piece) -> CachedOp | None:
        if piece.symbol is None:
            return None
        given = [name for name in piece.inputs if name not in self._params]
        return CachedOp(piece.symbol, given, self._params, self.flags)

    def __call__(self, arrays: Sequence[ndarray]) -> list[ndarray]:
        """Run on arrays in the order of `data_names`; raises as `CachedOp` does."""
        device = arrays[0].device
        values: dict[str, Any] = {name: p.data(device) for name, p in self._params.items()}
        values |= dict(zip(self.data_names, arrays))
        run_pieces(
            self._pieces,
            values,
            self._run,
            lambda array: array._host(),
            lambda host: from_host(host, device),
        )
        return [values[name] for name in self._results]

    def _run(self, number: int, piece: Piece, arrays: Sequence[ndarray]) -> list[ndarray]:
        op = self._ops[number]
        assert op is not None
        data = [a for name, a in zip(piece.inputs, arrays) if name not in self._params]
        return op(data)

    def cache_info(self) -> CacheInfo:
        """Sums over all parts; the signatures are those of the parts, too."""
        found = [op.cache_info() for op in self.parts]
        hits, misses, most, kept = (sum(column) for column in list(zip(*found))[:4])
        signatures = tuple(each for info in found for each in info.signatures)
        return CacheInfo(hits, misses, most, kept, signatures)

    def library(self, index: int = -1) -> Any:
        """The library that the last part compiled at last; `parts` have the others."""
        return self.parts[-1].library(index)
