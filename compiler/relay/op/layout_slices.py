"""Layout rules of slices: bounds follow their axes, and count blocks on blocked axes."""

from __future__ import annotations

from typing import Any

from .layout_query import Answer, Query
from .layout_string import Layout


def slice_like(query: Query) -> Answer | None:
    """Axes follow the layout if both operands have the same layout."""
    if query.old[0] is None or query.old[1] is None:
        return None
    if query.new is not None and query.new[0] == query.new[1] and query.old[0] == query.old[1]:
        now = query.new[0]
        axes = [now.index(query.old[0][int(axis)].letter) for axis in query.attrs["axes"] or []]
        if axes and min(axes) >= 0:
            return Answer([now, now], [now], {**query.attrs, "axes": axes})
    return Answer(list(query.old[:2]), [query.old[1]], query.attrs)


def strided_slice(query: Query) -> Answer | None:
    """Bounds follow their axes; on a blocked axis, they are divided by the block size."""
    old = query.old[0]
    if old is None:
        return None
    if query.new is None:
        return Answer([old], [old], query.attrs)
    now, attrs = query.new[0], query.attrs
    if now == old:
        return Answer([old], [old], attrs)
    if len(now) == len(old):
        changed = _slice_of_moved_axes(query, old, now)
    elif str(now).startswith(str(old)):
        changed = _slice_of_blocks(query, old, now)
    else:
        return None
    return None if changed is None else Answer([now], [now], {**attrs, **changed})


def _slice_of_moved_axes(query: Query, old: Layout, now: Layout) -> dict[str, Any] | None:
    attrs, shape = query.attrs, query.shape()
    begin, end = list(attrs["begin"]), list(attrs["end"])
    steps = list(attrs["strides"] or []) or [1]
    steps += [1] * (len(begin) - len(steps)) if len(steps) > 1 else steps * (len(begin) - 1)
    if attrs.get("axes") is not None:
        axes = [now.index(old[int(axis) % len(old)].letter) for axis in attrs["axes"]]
        return {"axes": axes, "strides": steps} if min(axes) >= 0 else None
    places = [old.index(axis.letter) for axis in now.axes]
    if min(places) < 0:
        return None
    by_size = attrs.get("slice_mode") == "size"

    def entry(values: list[Any], place: int, default: Any) -> Any:
        return values[place] if place < len(values) else default

    return {
        "begin": [entry(begin, place, 0) for place in places],
        "end": [entry(end, place, -1 if by_size else int(shape[place])) for place in places],
        "strides": [1 if by_size else entry(steps, place, 1) for place in places],
    }


def _slice_of_blocks(query: Query, old: Layout, now: Layout) -> dict[str, Any] | None:
    attrs, shape = query.attrs, query.shape()
    by_size = attrs.get("slice_mode") == "size"
    steps = list(attrs["strides"] or [])
    axes = attrs.get("axes")
    begins, ends = [], []
    for i, (begin, end) in enumerate(zip(attrs["begin"], attrs["end"])):
        place = i if axes is None else int(axes[i]) % len(old)
        factor = now.factor(old[place].letter)
        begin, end = int(begin), int(end)
        if factor:
            step = steps[i] if i < len(steps) else (steps[0] if len(steps) == 1 else 1)
            if int(step) != 1 and not by_size:
                return None
            if by_size:
                end = int(shape[place]) if end < 0 else begin + end
            end = min(end, int(shape[place]))
            if begin < 0 or end < 0 or begin % factor or end % factor:
                return None
            begin, end = begin // factor, (end - begin if by_size else end) // factor
        begins.append(begin)
        ends.append(end)
    changed: dict[str, Any] = {"begin": begins, "end": ends}
    if axes is not None:
        changed["axes"] = [now.index(old[int(axis) % len(old)].letter) for axis in axes]
    return changed
