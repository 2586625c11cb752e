"""Old scripts as they are: `tvm.relay`, `tvm.autotvm` and their kin, inside this process only.

    import compiler.legacy
    compiler.legacy.install()

    from tvm import relay, autotvm, auto_scheduler      # as in TVM 0.6 to 0.19

That gives modules, targets and names. What changes TVM's own classes too, such as arithmetic on
Relax expressions, comes with `baton run script.py [arguments]`, or inside of

    with compiler.legacy.installed():
        ...

The installed TVM's files stay as they are; `uninstall` takes everything back.
"""

from ..support.lazy_import import by_module, lazy_attributes

_MEMBERS = by_module(
    {
        ".installation": "install installed is_installed uninstall",
        ".script": "run_module run_script",
    }
)

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
