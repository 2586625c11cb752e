"""The front door that compile scripts import: `from compiler import relay`."""

from ..lazy import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        "build": ".build_module",
        "optimize": ".build_module",
        "frontend": ".frontend",
        "create_executor": ".executor",
        "parse": ".text",
        "parse_expr": ".text",
        "fromtext": ".text",
        "astext": ".text",
        "save_param_dict": ".saved",
        "load_param_dict": ".saved",
        "load_json": ".saved",
    },
)
