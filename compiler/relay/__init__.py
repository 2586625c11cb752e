"""Public Relay API: `from compiler import relay`."""

from ..support.lazy_import import by_module, lazy_attributes
from . import op
from .op import FAMILIES

_MODULES = (
    "adt analysis backend build_module data_dep_optimization dataflow_pattern expr frontend "
    "function loops op prelude qnn quantize scope_builder testing transform ty viz vm"
)

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".op.{name}" for name in FAMILIES},
        **{name: f".{name}" for name in _MODULES.split()},
        **by_module(
            {
                ".expr": (
                    "var const TupleWrapper Tuple TupleGetItem Let If Expr Var Constant GlobalVar "
                    "SequentialSpan SourceName Span"
                ),
                ".ty": (
                    "Any IncompleteType TypeKind TensorType TupleType FuncType Type scalar_type"
                ),
                ".adt": (
                    "TypeVar GlobalTypeVar TypeCall TypeData RefType Constructor Match Clause "
                    "PatternWildcard PatternVar PatternConstructor PatternTuple RefCreate RefRead "
                    "RefWrite"
                ),
                ".call": "Call",
                ".function": "Function bind",
                ".build_module": "build optimize",
                "..ir.dynamic_shape": "with_bounds",
                "..ir.shape_hints": "with_sizes",
                "..ir.kv_cache": "with_kv_cache",
                ".relax_to_relay": "from_relax to_relax",
                ".executor": "create_executor",
                ".transform": "build_config",
                ".expr_functor": "ExprFunctor ExprVisitor ExprMutator",
                ".text": "parse parse_expr fromtext astext",
                ".text.spans": "SpanCheck",
                ".saved": "save_param_dict load_param_dict load_json",
                ".scope_builder": "ScopeBuilder",
            }
        ),
    },
    others=lambda name: getattr(op, name),
)
