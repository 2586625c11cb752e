"""Shape hints: extents that get specialized kernels in addition to the dynamic ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from ..errors import BuildError
from . import dynamic_shape
from .rewrite import with_functions

ASKED = "baton.sizes"
"""Attribute of `main`: extents by the name of their symbol, as JSON."""
MOST_VARIANTS = 16


def with_sizes(mod: tvm.IRModule, sizes: Mapping[str, Sequence[int]]) -> tvm.IRModule:
    """Request static kernels for certain values of symbols, next to the dynamic ones.

    With several symbols, there is a variant for each combination of their values. All other sizes
    use the dynamic kernels. Variants share weights that are packed alike.

    Parameters
    ----------
    mod : tvm.IRModule
    sizes : dict of str to list of int
        Sizes, by the names of the symbols.

    Raises
    ------
    BuildError
        `main` has no such symbol, an extent is not a positive integer within its bound, or there
        are more than 16 combinations.
    """
    if not sizes:
        return mod
    main = mod["main"]
    known = [str(symbol.name) for symbol in dynamic_shape.in_order(main)]
    bounds = dynamic_shape.bounds(main)
    for name, extents in sizes.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise BuildError(f"main has no symbolic extent {name!r}; its symbols are: {listed}")
        for extent in extents:
            if isinstance(extent, bool) or not hasattr(extent, "__index__") or int(extent) < 1:
                raise BuildError(
                    f"a size of {name!r} must be a positive integer, not {extent!r:.40}"
                )
            if int(extent) > bounds.get(name, int(extent)):
                raise BuildError(
                    f"the size {extent} of {name!r} is beyond its bound {bounds[name]}"
                )
    whole = {name: sorted({int(extent) for extent in extents}) for name, extents in sizes.items()}
    count = len(list(itertools.product(*whole.values())))
    if not 1 <= count <= MOST_VARIANTS:
        raise BuildError(f"{count} combinations of sizes; there may be 1 to {MOST_VARIANTS}")
    asked = main.with_attr(ASKED, json.dumps(whole))
    return with_functions(mod, {mod.get_global_var("main"): asked})


def asked(main: relax.Function) -> list[dict[str, int]]:
    """The combinations of extents that `with_sizes` was given for a function."""
    text = (main.attrs or {}).get(ASKED)
    if text is None:
        return []
    sizes = json.loads(str(text))
    return [dict(zip(sizes, each)) for each in itertools.product(*sizes.values())]
