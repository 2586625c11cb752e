"""`relay.testing`: networks with random weights, and test helpers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...support.lazy_import import lazy_attributes

_NETWORKS = (
    *("densenet", "dcgan", "dqn", "inception_v3", "lstm", "mlp", "mobilenet"),
    *("resnet", "resnet_3d", "squeezenet", "synthetic", "vgg"),
)

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".{name}" for name in _NETWORKS},
        "init": ".init",
        "temp_op_attr": ".temp_op_attr",
        "layers": ".layers",
        "create_workload": ".init",
        **dict.fromkeys(
            ("add_nat_definitions", "count", "make_nat_value", "make_nat_expr"), ".nat"
        ),
    },
)


def run_opt_pass(expr: Any, opt_pass: Any, import_prelude: bool = False) -> Any:
    """Apply a pass, or a list of passes, to a function."""
    import tvm
    from tvm import relax

    del import_prelude
    passes = tvm.transform.Sequential(opt_pass) if isinstance(opt_pass, list) else opt_pass
    mod = expr if isinstance(expr, tvm.IRModule) else tvm.IRModule.from_expr(expr)
    entry = passes(mod)["main"]
    return entry if isinstance(expr, relax.Function) else entry.body


def check_grad(
    func: Any,
    inputs: Sequence[Any] | None = None,
    test_inputs: Sequence[Any] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Any = None,
    executor_kind: str = "debug",
) -> None:
    """Compare a function's gradients with central finite differences.

    Parameters
    ----------
    func : relax.Function
        Function with float64 parameters, or of another dtype that supports steps of `eps`.
    inputs : list of numpy.ndarray, optional
        Point of evaluation; normally distributed by default, with `scale` (10 `eps`) and `mean`.
    test_inputs : list of numpy.ndarray, optional
        Inputs whose gradients are compared; all by default.

    Raises
    ------
    AssertionError
        The gradients differ by more than `atol` and `rtol`.
    """
    import numpy as np

    from ..executor import create_executor
    from ..transform import gradient

    if inputs is None:
        scale = 10 * eps if scale is None else scale
        shapes = [[int(extent) for extent in var.ty.shape] for var in func.params]
        inputs = [
            np.asarray(mean + scale * np.random.randn(*shape)).astype(str(var.ty.dtype))
            for var, shape in zip(func.params, shapes)
        ]
    tested = inputs if test_inputs is None else test_inputs
    for target, device in target_devices or enabled_targets():
        executor = create_executor(executor_kind, device=device, target=target)
        forward, backward = executor.evaluate(func), executor.evaluate(gradient(func, mode=mode))
        _, gradients = backward(*inputs)
        for array, found in zip(inputs, gradients):
            if not any(array is each for each in tested):
                continue
            expected = np.zeros(array.shape)
            for index in np.ndindex(*array.shape):
                kept, values = array[index], []
                for moved in (kept + eps, kept - eps):
                    array[index] = moved
                    values.append(forward(*inputs).numpy().astype("float64"))
                array[index] = kept
                expected[index] = np.sum((values[0] - values[1]) / (2 * eps))
            np.testing.assert_allclose(found.numpy(), expected, atol=atol, rtol=rtol)


def run_infer_type(expr: Any, prelude: Any = None) -> Any:
    """Return the expression, which is typed since its construction."""
    from ..expr import as_expr
    from ..type_infer import infer_type

    del prelude
    return infer_type(as_expr(expr))


def rand(dtype: str, *shape: int) -> Any:
    """Create a tensor of random numbers between 0 and 1."""
    import numpy as np
    import tvm

    return tvm.runtime.tensor(np.random.rand(*shape).astype(dtype))


def count_ops(expr: Any) -> dict[str, int]:
    """Count the calls of each operator."""
    from ..analysis import list_op_freqs

    return list_op_freqs(expr)


def enabled_targets() -> Iterator[tuple[str, Any]]:
    """Targets available on this machine, with their devices."""
    import tvm

    yield "llvm", tvm.cpu(0)
