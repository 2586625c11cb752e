"""Relay text, format 0.0.5: `relay.parse`, `relay.fromtext`, `relay.parse_expr`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...support.lazy_import import lazy_attributes

if TYPE_CHECKING:
    import tvm

__getattr__ = lazy_attributes(__name__, {"SpanCheck": ".spans"})


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: tvm.IRModule | None = None,
    init_meta_table: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Read a module from Relay text.

    Parameters
    ----------
    source : str
        The text, which begins with `#[version = "0.0.5"]`, with its metadata section.
    source_name : str
        Prefix of positions in errors.
    init_module : tvm.IRModule, optional
        Module whose functions the text may call; they are included in the result.
    init_meta_table : dict of str to sequence, optional
        Objects for `meta[...]` if the text has no metadata section.

    Returns
    -------
    tvm.IRModule
        Relax functions with Relay operators, accepted by `relay.build` and the passes. Data
        types and functions over them are evaluated where `main` uses them. Without a `main`
        over tensors, they are kept unevaluated as a library.

    Raises
    ------
    RelaySyntaxError
        The text is malformed; the error contains line, column and the line itself.
    RelayError
        An operator does not fit its operands, or something cannot be represented in compiled code.
    """
    from .parser import parse_module
    from .to_nodes import is_library, to_nodes
    from .to_relax import to_relax

    program = parse_module(source, source_name, None, init_meta_table)
    if is_library(program):
        return to_nodes(program, init_module)
    return to_relax(program, init_module)


def fromtext(data: str, source_name: str | None = None) -> tvm.IRModule:
    """Former name of `parse` for a whole module."""
    return parse(data, source_name or "from_string")


def parse_expr(source: str) -> Any:
    """Parse one expression from Relay text, without header and module.

    Returns
    -------
    relax.Expr
        The nested expression, unevaluated; its free variables are those declared by `free_var` in
        the text. A relax.Function for the text of a function, `fn (...) { ... }`.
    """
    from .parser import parse_expression
    from .to_nodes import expression

    return expression(parse_expression(source), source)


def astext(obj: Any, show_meta_data: bool = True, annotate: Any = None) -> str:
    """Print a module, function or expression as Relay text.

    Parameters
    ----------
    obj : tvm.IRModule, relax.Function or relax.Expr
        Object to print. Free variables of an expression are declared first. Parsing the text with
        `parse` or `parse_expr` returns an equivalent object.
    show_meta_data : bool
        Include the metadata section with the tensors.
    annotate
        Formerly a callback that adds comments; must be None.

    Raises
    ------
    RelayError
        The module contains lowered kernels or Relax operators without a Relay equivalent.
    """
    import tvm
    from tvm import relax

    from ...errors import RelayError
    from ..function import OpenFunction
    from ..variables import free_vars
    from .from_relax import expression_of, from_relax, open_function_of
    from .writer import write, write_expression, write_function

    if annotate is not None:
        raise RelayError("annotate= is not supported; print the module and add comments there")
    if isinstance(obj, tvm.IRModule):
        return write(from_relax(obj), show_meta_data)
    if isinstance(obj, OpenFunction):
        return obj.astext(show_meta_data)
    if isinstance(obj, relax.Function):
        function, free = open_function_of(free_vars(obj), obj)
        return write_function(function, show_meta_data, free)
    return write_expression(*expression_of(free_vars(obj), obj), show_meta_data)
