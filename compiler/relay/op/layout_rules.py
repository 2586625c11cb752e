"""Layout rules of operators: required operand layouts and inferred result layouts.

A rule is called twice: for the original call with the original operand layouts, and again with
their current layouts. It returns layouts of all operands and results with matching attributes, or
None if unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from .layout_query import Answer, Maybe, Query, Rule
from .layout_string import Axis, Layout, is_one, like, without_blocks_of_one

CHANNELS = Layout("C")
SCALAR = Layout("")


def elementwise(query: Query) -> Answer:
    """Layout of the first operand with a known layout."""
    found: Maybe
    if query.new is not None:
        found = query.new[0]
    else:
        found = next((each for each in query.old if each is not None), None)
    return Answer([found] * len(query.old), [found], query.attrs)


def broadcast(query: Query) -> Answer | None:
    """Arithmetic: the smaller operand follows the layout change of the larger one."""
    shapes = [query.shape(0), query.shape(1)]
    large = 0 if len(shapes[0]) >= len(shapes[1]) else 1
    layouts = list(query.old[:2])
    if layouts[0] is None and layouts[1] is None:
        return None
    if layouts[0] is None or layouts[1] is None:
        known = 0 if layouts[0] is not None else 1
        defined = layouts[known]
        assert defined is not None
        if len(shapes[known]) < len(shapes[1 - known]):
            return None
        layouts[1 - known] = defined.last(len(shapes[1 - known]))
        result: Maybe = defined
    else:
        result = layouts[large]
    if query.new is None:
        return Answer(layouts, [result], query.attrs)
    result = query.new[large]
    most = 0 if query.new[0].rank >= query.new[1].rank else 1
    small, before = layouts[1 - most], layouts[most]
    if small is None or before is None:
        return None
    target = like(small, before, query.new[most])
    if target is None:
        return None
    layouts[most] = query.new[most]
    layouts[1 - most] = without_blocks_of_one(target, small, shapes[1 - most])
    return Answer(layouts, [result], query.attrs)


def convolution(query: Query) -> Answer:
    """Layouts from attributes."""
    data = Layout(query.attrs["data_layout"])
    out = Layout(str(query.attrs.get("out_layout") or "")) or data
    rest: list[Maybe] = [CHANNELS] * (len(query.types) - 2)
    return Answer([data, Layout(query.attrs["kernel_layout"]), *rest], [out], query.attrs)


def deformable(query: Query) -> Answer:
    """Same as `convolution`; the offsets have the data's layout."""
    found = convolution(query)
    return Answer([found.inputs[0], *found.inputs[:2]], found.outputs, query.attrs)


def pooling(query: Query) -> Answer:
    """The data's layout, unless `out_layout` requires another."""
    attrs = query.attrs
    if not attrs.get("out_layout") and query.new is not None:
        attrs = {**attrs, "layout": str(query.new[0])}
    own = Layout(attrs["layout"])
    rest: list[Maybe] = [CHANNELS] * (len(query.types) - 1)
    return Answer([own, *rest], [own], attrs)


def upsampling(query: Query) -> Answer:
    """The data's layout if depth, height and width are unsplit and at their original positions."""
    attrs = query.attrs
    own = Layout(attrs["layout"])
    if query.new is not None:
        now = query.new[0]
        if all(
            now.index(letter) == own.index(letter) and now.index(letter.lower()) < 0
            for letter in "DHW"
        ):
            attrs = {**attrs, "layout": str(now)}
            own = now
    return Answer([own], [own], attrs)


def resize(query: Query) -> Answer:
    """The data's layout if the number of axes is unchanged."""
    attrs = query.attrs
    own = Layout(attrs["layout"])
    if query.new is not None:
        now, old = query.new[0], query.old[0]
        if now != old and own == old and len(now) == len(old):
            attrs = {**attrs, "layout": str(now)}
            own = now
    rest: list[Maybe] = [SCALAR] * (len(query.types) - 1)
    return Answer([own, *rest], [own], attrs)


def padding(query: Query) -> Answer:
    """Padding widths follow their axes; a blocked axis must not be padded."""
    old, attrs, result = query.old[0], query.attrs, query.old[0]
    if query.new is not None and old is not None:
        widths = {axis.letter: width for axis, width in zip(old.axes, attrs["pad_width"])}
        moved, fits = [], True
        for axis in query.new[0].axes:
            whole = axis.letter in widths and axis.is_whole
            width = widths[axis.letter if whole else axis.letter.upper()]
            moved.append(width)
            fits = fits and (whole or not any(int(side) for side in width))
        if fits:
            result, attrs = query.new[0], {**attrs, "pad_width": moved}
    return Answer([result, SCALAR], [result], attrs)


def along_axis(*operands: Layout, results: Sequence[Layout] = (), twice: bool = False) -> Rule:
    """Operator along one unsplit axis, other layouts given; `twice`: two results like the data."""

    def rule(query: Query) -> Answer:
        attrs, found = query.attrs, query.old[0]
        if query.new is not None and query.old[0] is not None:
            letter = query.old[0][query.axis()].letter
            attrs = {**attrs, "axis": query.new[0].index(letter)}
            found = query.new[0]
        outputs: list[Maybe] = [found, found] if twice else [found]
        return Answer([found, *operands], [*outputs, *results], attrs)

    return rule


batch_norm = along_axis(*[CHANNELS] * 4, results=(CHANNELS, CHANNELS))
norm = along_axis(CHANNELS, CHANNELS)


def prelu(query: Query) -> Answer:
    """The data's original layout."""
    return Answer([query.old[0], CHANNELS], [query.old[0]], query.attrs)


def l2_normalize(query: Query) -> Answer:
    """Any layout; the axes are permuted."""
    old = query.old[0]
    if query.new is None or old is None:
        return Answer([old], [old], query.attrs)
    rank = len(query.shape())
    axes = [query.new[0].index(old[int(axis) % rank].letter) for axis in query.attrs["axis"] or []]
    return Answer([query.new[0]], [query.new[0]], {**query.attrs, "axis": axes})


def concatenate(query: Query) -> Answer | None:
    """The current layout shared by all fields, or the first field's original layout."""
    fields = list(query.types[0].fields)
    axis = query.axis(rank=int(fields[0].ndim))
    old, new = query.old[: len(fields)], (query.new or [])[: len(fields)]
    rest: list[Maybe] = [CHANNELS] * (len(query.old) - len(fields))
    if new and all(each == new[0] for each in new) and old[0] is not None:
        attrs = {**query.attrs, "axis": new[0].index(old[0][axis].letter)}
        return Answer([*new, *rest], [new[0]], attrs)
    found = next((each for each in old if each is not None), None)
    if found is None or len(found) <= axis or not found[axis].is_whole:
        return None
    same: list[Maybe] = [found] * len(fields)
    return Answer([*same, *rest], [found], query.attrs)


def transpose(query: Query) -> Answer | None:
    """Axes follow the data's layout; the result's letters are permuted."""
    old = query.old[0]
    if old is None:
        return None
    given = query.attrs["axes"] or range(len(old))[::-1]
    axes, layout = [int(axis) % len(old) for axis in given], old
    if query.new is not None:
        moved = [query.new[0].index(old[axis].letter) for axis in axes]
        if min(moved, default=0) >= 0 and len(moved) == len(query.new[0]):
            axes, layout = moved, query.new[0]
    if any(not axis.is_whole for axis in layout.axes):
        return None
    result = Layout([layout[axis] for axis in axes])
    return Answer([layout], [result], {**query.attrs, "axes": axes})


def squeeze(query: Query) -> Answer | None:
    """Squeezed axes follow the layout."""
    old, attrs = query.old[0], query.attrs
    if old is None:
        return None
    shape = query.shape()
    axes = attrs["axis"]
    if axes is None:
        axes = [i for i, extent in enumerate(shape) if is_one(extent)]
    axes = [int(axis) % len(shape) for axis in axes]
    layout = old
    if query.new is not None:
        layout = query.new[0]
        axes = [layout.index(old[axis].letter) for axis in axes]
        attrs = {**attrs, "axis": axes}
    left = [axis for place, axis in enumerate(layout.axes) if place not in axes]
    return Answer([layout], [Layout(left)], attrs)


def split(query: Query) -> Answer:
    """Split along an unsplit axis at any position, or at block boundaries."""
    old, attrs = query.old[0], query.attrs
    sections = attrs["indices_or_sections"]
    count = len(sections) + 1 if isinstance(sections, (list, tuple)) else int(sections)
    found = old
    if query.new is not None and old is not None:
        letter = old[query.axis()].letter
        factor = query.new[0].factor(letter)
        attrs = {**attrs, "axis": query.new[0].index(letter)}
        found = query.new[0]
        if factor > 1 and isinstance(sections, (list, tuple)):
            if any(int(each) % factor for each in sections):
                found, attrs = old, query.attrs
            else:
                attrs["indices_or_sections"] = [int(each) // factor for each in sections]
    return Answer([found], [found] * count, attrs)


def reduction(query: Query) -> Answer | None:
    """Reduced axes follow the layout; for a blocked axis, its block axis is reduced too."""
    old, attrs = query.old[0], query.attrs
    if old is None:
        return None
    rank = len(query.shape())
    named = attrs["axis"]
    named = list(range(rank)) if named is None else named
    axes = {int(axis) % rank for axis in (named if isinstance(named, list) else [named])}
    if attrs.get("exclude") and attrs["axis"] is not None:
        axes = set(range(rank)) - axes
    letters = {old[axis].letter for axis in axes}
    layout = query.new[0] if query.new is not None and axes else old
    reduced, left = [], []
    for place, axis in enumerate(layout.axes):
        if axis.letter.upper() not in letters:
            left.append(axis)
            continue
        reduced.append(place)
        if attrs.get("keepdims"):
            left.append(axis if axis.is_whole else Axis(axis.letter, 1))
    if query.new is not None and axes:
        attrs = {**attrs, "axis": reduced}
        if attrs.get("exclude"):
            attrs["axis"] = [place for place in range(len(layout)) if place not in reduced]
    # A full reduction keeps the original layout: Relay has no layout of a scalar.
    return Answer([layout] * len(query.old), [Layout(left) if left else None], attrs)


def fixed(inputs: Sequence[str], output: str) -> Rule:
    """Fixed layouts."""

    def rule(query: Query) -> Answer:
        found: list[Maybe] = [Layout(each) for each in inputs]
        return Answer(found[: len(query.old)], [Layout(output)], query.attrs)

    return rule


def dense_pack(query: Query) -> Answer:
    """Weight layout from an attribute."""
    rest: list[Maybe] = [Layout("N")] * (len(query.types) - 2)
    inputs = [Layout("NC"), Layout(query.attrs["weight_layout"]), *rest]
    return Answer(inputs, [Layout("NC")], query.attrs)


def regions(query: Query) -> Answer:
    """Image regions are rows of five numbers."""
    data = Layout(query.attrs["layout"])
    return Answer([data, Layout("N")], [data], query.attrs)


def with_layout(count: int) -> Rule:
    """Layout from an attribute for the first `count` operands."""

    def rule(query: Query) -> Answer:
        own = Layout(query.attrs["layout"])
        return Answer([own] * count, [own], query.attrs)

    return rule


def dilation2d(query: Query) -> Answer:
    """Layouts from attributes."""
    data = Layout(query.attrs["data_layout"])
    return Answer([data, Layout(query.attrs["kernel_layout"])], [data], query.attrs)


def requantize(query: Query) -> Answer | None:
    """Any layout; blocked channels require a scalar scale."""
    old, attrs = query.old[0], query.attrs
    rest: list[Maybe] = [CHANNELS] * 4
    if query.new is None:
        return Answer([old, *rest], [old], attrs)
    assert old is not None
    letter = old[query.axis()].letter
    one_scale = query.is_scalar(1) and query.is_scalar(2)
    now = Layout([axis for axis in query.new[0].axes if axis.is_whole or one_scale])
    return Answer([now, *rest], [now], {**attrs, "axis": now.index(letter)})


def per_axis_multiply(query: Query) -> Answer | None:
    """Multipliers and shifts follow their axes, including blocks."""
    old, attrs = query.old[0], query.attrs
    if old is None:
        return None
    letters = {old[int(axis)].letter for axis in attrs["axes"]}
    layout = old if query.new is None else query.new[0]
    places = [i for i, axis in enumerate(layout.axes) if axis.letter.upper() in letters]
    if query.new is not None:
        attrs = {**attrs, "axes": places}
    inner = Layout([layout[place] for place in places])
    return Answer([layout, inner, inner, inner], [layout], attrs)


def quantized_broadcast(query: Query) -> Answer | None:
    """Same as `broadcast`; scales and zero points are scalars or vectors along the channels."""
    found = broadcast(query)
    if found is None:
        return None
    rest: list[Maybe] = [CHANNELS] * (len(query.types) - 2)
    return Answer([*found.inputs, *rest], found.outputs, found.attrs)
