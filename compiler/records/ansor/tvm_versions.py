"""Stage and axis names of TVM versions, on which the hash of a compute DAG depends.

Each boundary between two versions is a name change in TOPI or Relay. A kernel is printed once
in the names of every version, and each text's hash is looked up.

    2021-05-04  reduction axes of pooling   dh, dw                      -> rv0, rv1
    2021-06-30  dense layers                T_dense                     -> T_matmul_NT
    2021-07-30  batched products            compute                     -> T_batch_matmul_NT
    2022-01-07  convolutions                PaddedInput, Conv2dOutput   -> pad_temp, conv2d_nhwc
                                            compute                     -> conv2d_nchw
                (kernel axes ry, rx were r0, r1 until 2022-02-18)
    2022-09-14  Relay's operands            placeholder                 -> p0, p1, ...
                bounds of fast_tanh         min(x, 9f)                  -> min(9f, x)
    2022-11-16  results of pooling          tensor                      -> pool_max, pool_sum, ...
    2023-11-12  axes of dense layers        i, j                        -> i0, i1
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx
from tvm.ir import Call

from .dag import ComputeDag, Operation
from .dag_text import Names, intrinsic_name

_POOLING = ("pool_", "adaptive_pool_")
_MATMUL = {2: "T_matmul_NN", 3: "T_batch_matmul_NN"}
_BATCH_AXES = ("b", "i", "j")


# The number of an era counts these changes of names back from today's.
_DENSE_AXES, _RESULTS, _OPERANDS, _NUMBERED_TAPS, _CONVOLUTIONS, _BATCHED, _DENSE, _WINDOW_AXES = (
    range(1, 9)
)


def namings(dag: ComputeDag) -> Iterator[Names]:
    """Names of each era, the youngest first."""
    readers: dict[Operation, Operation] = {}
    for op in dag.operations:
        for producer in op.producers:
            readers.setdefault(producer, op)
    for era in range(_WINDOW_AXES + 1):
        yield _names(era, readers)


def _names(era: int, readers: dict[Operation, Operation]) -> Names:
    def operation(op: Operation, number: int) -> str:
        if op.is_placeholder:
            return "placeholder" if era >= _OPERANDS else f"p{number}"
        return _operation(era, op, readers)

    return Names(operation, lambda op: _axes(era, op), bounds_last=era >= _OPERANDS)


def _operation(era: int, op: Operation, readers: dict[Operation, Operation]) -> str:
    name = op.base_name
    if name == "compute":
        return _element_wise(op)
    if name == "matmul":
        return _MATMUL.get(len(op.shape), name)
    if name == "T_matmul_NT" and era >= _DENSE:
        return "T_dense"
    if name == "T_batch_matmul_NT" and era >= _BATCHED:
        return "compute"
    if name == "pad_temp" and era >= _CONVOLUTIONS:
        reader = readers.get(op)
        return "PaddedInput" if reader and reader.base_name == "conv2d_nhwc" else name
    if era >= _CONVOLUTIONS and name in ("conv2d_nhwc", "conv2d_nchw"):
        return "Conv2dOutput" if name == "conv2d_nhwc" else "compute"
    if era >= _RESULTS and name.startswith(_POOLING):
        return "tensor"
    return name


def _element_wise(op: Operation) -> str:
    """TOPI in Python calls all its element-wise operations "compute"; Relay's did not."""
    value = op.store.value
    if isinstance(value, Call):
        return f"T_{intrinsic_name(value)}"
    is_maximum = isinstance(value, tirx.Max) and isinstance(value.b, tirx.FloatImm)
    if is_maximum and not isinstance(value.a, tirx.Min):  # clip was TOPI's in Python, too
        return "T_relu"
    return op.base_name


def _axes(era: int, op: Operation) -> tuple[str, ...]:
    names = tuple(axis.name for axis in op.axes)
    base = op.base_name
    if base == "compute" and _element_wise(op) != "compute":
        return tuple(f"ax{i}" for i in range(len(names)))
    if base == "matmul" and len(op.shape) == 3:
        return (*_BATCH_AXES, *names[3:])
    if base in ("matmul", "T_matmul_NT") and era >= _DENSE_AXES:
        return ("i", "j", *names[2:])
    if era == _NUMBERED_TAPS and base in ("conv2d_nhwc", "conv2d_nchw"):
        return tuple({"ry": "r0", "rx": "r1"}.get(name, name) for name in names)
    if era >= _WINDOW_AXES and base.startswith(_POOLING):
        return tuple({"rv0": "dh", "rv1": "dw"}.get(name, name) for name in names)
    return names
