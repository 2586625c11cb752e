"""Public Relay API: `from compiler import relay`."""

from ..support.lazy_import import lazy_attributes
from . import op
from .op import FAMILIES

_EXPRESSIONS = (
    *("var", "const", "TupleWrapper", "Tuple", "TupleGetItem", "Let", "If"),
    *("Expr", "Var", "Constant", "GlobalVar"),
)
_DATA = (
    *("TypeVar", "GlobalTypeVar", "TypeCall", "TypeData", "RefType", "Constructor", "Match"),
    *("Clause", "PatternWildcard", "PatternVar", "PatternConstructor", "PatternTuple"),
    *("RefCreate", "RefRead", "RefWrite"),
)
_TYPES = [
    "Any",
    "IncompleteType",
    "TypeKind",
    "TensorType",
    "TupleType",
    "FuncType",
    "Type",
    "scalar_type",
]
_PACKAGES = [
    "adt",
    "analysis",
    "backend",
    "build_module",
    "data_dep_optimization",
    "expr",
    "function",
    "loops",
    "op",
    "prelude",
    "qnn",
    "quantize",
    "scope_builder",
    "testing",
    "ty",
    "vm",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".op.{name}" for name in FAMILIES},
        **dict.fromkeys(_EXPRESSIONS, ".expr"),
        **dict.fromkeys(_TYPES, ".ty"),
        **dict.fromkeys(_DATA, ".adt"),
        **{name: f".{name}" for name in _PACKAGES},
        "Call": ".call",
        "Function": ".function",
        "bind": ".function",
        "build": ".build_module",
        "optimize": ".build_module",
        "with_bounds": "..ir.dynamic_shape",
        "with_sizes": "..ir.shape_hints",
        "with_kv_cache": "..ir.kv_cache",
        "frontend": ".frontend",
        **dict.fromkeys(("from_relax", "to_relax"), ".relax_to_relay"),
        "create_executor": ".executor",
        "transform": ".transform",
        "viz": ".viz",
        "build_config": ".transform",
        "dataflow_pattern": ".dataflow_pattern",
        **dict.fromkeys(("ExprFunctor", "ExprVisitor", "ExprMutator"), ".expr_functor"),
        "parse": ".text",
        "parse_expr": ".text",
        "fromtext": ".text",
        "astext": ".text",
        "SpanCheck": ".text.spans",
        "save_param_dict": ".saved",
        "load_param_dict": ".saved",
        "load_json": ".saved",
        "ScopeBuilder": ".scope_builder",
        **dict.fromkeys(("SequentialSpan", "SourceName", "Span"), ".expr"),
    },
    others=lambda name: getattr(op, name),
)
