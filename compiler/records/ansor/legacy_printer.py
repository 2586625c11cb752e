"""Right-hand sides, made from operation sizes, that TVM 0.27 simplifies and Ansor hashed
unsimplified.
"""

from __future__ import annotations

from .dag import ComputeDag, Operation
from .index_coefficients import coefficient, index_of, offset


def texts_of_era(dag: ComputeDag) -> dict[str, str]:
    """Texts of a DAG's stages as TVM 0.18 had them, by name; "@" is a stage's first operand."""
    texts: dict[str, str] = {}
    for op in dag.operations:
        text = None
        if op.base_name == "adaptive_pool_avg":
            text = _adaptive_text(op)
        elif op.base_name == "pool_avg":
            text = _average_text(op)
        elif op.base_name == "DepthwiseConv2d" and len(op.shape) == 5:
            text = _blocked_depthwise_text(op)
        if text is not None:
            texts[op.base_name] = text
    return texts


def _adaptive_text(op: Operation) -> str | None:
    """Texts of global pooling."""
    windows = _windows(op.producers[0])
    if any(op.shape[dim] != 1 for dim in windows):
        return None
    factors = []
    for dim, window in windows.items():
        end = f"((ax{dim} + 1)*{window})"
        factors.append(f"float32((select((bool)1, {end}, ({end} + 1)) - (ax{dim}*{window})))")
    divisor = f"({'*'.join(factors)})" if len(factors) > 1 else factors[0]
    return f"= (@[{_own_indices(op)}]/{divisor})"


def _average_text(op: Operation) -> str | None:
    """Texts of average pooling with count_include_pad=False."""
    total = op.producers[0]
    read = total.producers[0]
    windows = _windows(total)
    if len(windows) != 2:
        return None
    is_padded = read.base_name == "pad_temp"
    data = read.producers[0] if is_padded else read
    index = index_of(total, read)
    from_data = index_of(read, data) if is_padded else None
    factors = []
    for dim, window in windows.items():
        stride = coefficient(total, index[dim], total.axes[dim])
        before = offset(read, from_data[dim]) if from_data is not None else 0
        if stride is None or before is None:
            return None
        start = f"ax{dim}" if stride == 1 else f"(ax{dim}*{stride})"
        start = f"({start} - {-before})" if before else start
        last, end = data.shape[dim] - 1, f"({start} + {window - 1})"
        factors.append(f"((min({end}, {last}) - ({start} + max((0 - {start}), 0))) + 1)")
    return f"= (@[{_own_indices(op)}]/float32(max(({'*'.join(factors)}), 1)))"


def _blocked_depthwise_text(op: Operation) -> str | None:
    """Texts of a depthwise NCHWc convolution: b, oco, oh, ow, oci | kh, kw."""
    padded = op.producers[0]
    index = index_of(op, padded)
    places = []
    for dim, axis, tap in ((2, "oh", "kh"), (3, "ow", "kw")):
        stride = coefficient(op, index[dim], op.axes[dim])
        if stride is None:
            return None
        places.append(f"({axis} + {tap})" if stride == 1 else f"(({axis}*{stride}) + {tap})")
    channel, block = f"((oco*{op.shape[4]}) + oci)", padded.shape[4]
    return (
        f"+= (@[b, floordiv({channel}, {block}), {places[0]}, {places[1]}, "
        f"floormod({channel}, {block})]*@1[oco, 0, kh, kw, 0, oci])"
    )


def _windows(total: Operation) -> dict[int, int]:
    """Extent of the window by the dimension in whose index it runs."""
    index = index_of(total, total.producers[0])
    return {
        dim: axis.extent
        for axis in total.axes
        if axis.is_reduction
        for dim, each in enumerate(index)
        if coefficient(total, each, axis)
    }


def _own_indices(op: Operation) -> str:
    return ", ".join(f"ax{i}" for i in range(len(op.shape)))
