"""`relay.backend`: build options, build results and executors under their Relay names."""

from ...support.lazy_import import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        "Executor": ".options",
        "Runtime": ".options",
        "executor_factory": ".executor_factory",
        "graph_executor_codegen": ".graph_executor_codegen",
        "interpreter": ".interpreter",
        "te_compiler": ".te_compiler",
        "vm": "..vm",
    },
)
