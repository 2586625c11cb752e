"""How a library's weights are made of a model's, so that the kit need not carry them.

A build transposes, slices, concatenates, scales and converts the weights of a model. For each
weight of a library the recipe of these steps is found by trying, and is kept only if it gives the
same bytes. `scripts.gpu_kit.on_device.weights` applies recipes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from scripts.gpu_kit.on_device.weights import apply_part, apply_recipe

Recipe = dict[str, Any]
SMALL = 1 << 16
"""Bytes of a weight that is carried as it is where nothing else gives it."""


def find_recipes(
    sources: dict[str, np.ndarray], weights: dict[str, np.ndarray], scales: dict[str, np.ndarray]
) -> tuple[dict[str, Recipe], dict[str, np.ndarray]]:
    """Recipes of a library's weights, and the arrays that they name.

    Parameters
    ----------
    sources : dict of str to numpy.ndarray
        The model's initializers.
    weights : dict of str to numpy.ndarray
        The library's.
    scales : dict of str to numpy.ndarray
        Factors of the output channels of sources, which a float32 build finds and others use.

    Raises
    ------
    ValueError
        A weight larger than `SMALL` has no recipe; the message names it.
    """
    finder = _Finder(sources, scales)
    recipes: dict[str, Recipe] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, wanted in weights.items():
        recipe = finder.recipe(wanted)
        if recipe is None and wanted.nbytes > SMALL:
            raise ValueError(f"weight {name} {wanted.dtype}{wanted.shape}: no recipe gives it")
        if recipe is None:
            arrays[name] = wanted
            recipe = {"array": name}
        for part in recipe.get("parts", ()):
            if "scale" in part:
                arrays[part["scale"]] = scales[part["source"]]
        made = apply_recipe(recipe, sources, arrays)
        assert made.tobytes() == np.ascontiguousarray(wanted).tobytes(), name
        recipes[name] = recipe
    return recipes, arrays


class _Finder:
    def __init__(self, sources: dict[str, np.ndarray], scales: dict[str, np.ndarray]) -> None:
        self._scales = scales
        self._sources = sources
        self._by_size: dict[int, list[str]] = {}
        for name, values in sources.items():
            self._by_size.setdefault(values.size, []).append(name)

    def recipe(self, wanted: np.ndarray) -> Recipe | None:
        """The weight as one source, or as parts that are concatenated along an axis."""
        for axis, count in ((0, 1), *itertools.product(range(wanted.ndim), (2, 3))):
            if not wanted.size or wanted.shape[axis] % count:
                continue
            pieces = np.split(wanted, count, axis)
            parts = [self._part(piece) for piece in pieces]
            if all(part is not None for part in parts):
                return {"parts": parts, "axis": axis}
        return None

    def _part(self, wanted: np.ndarray) -> Recipe | None:
        for name in self._by_size.get(wanted.size, []):
            for part in _arrangements(name, self._sources[name], wanted):
                found = self._as_is_or_scaled(part, wanted)
                if found is not None:
                    return found
        for name, values in self._sources.items():
            rows = _rows(values, wanted)
            if rows is not None:
                part = _part(name, (0, 1), wanted)
                return {**part, "rows": rows}
        return None

    def _as_is_or_scaled(self, part: Recipe, wanted: np.ndarray) -> Recipe | None:
        name = part["source"]
        values = self._sources[name]
        given = apply_part(part, values, None)
        if _same(given, wanted):
            return part
        if values.ndim != 4 or values.dtype != np.float32:
            return None
        scaled = {**part, "scale": f"scale of {name}"}
        if name not in self._scales:
            if wanted.dtype != np.float32:
                return None
            scale = _factors(values, part, wanted)
            if scale is None:
                return None
            self._scales[name] = scale
        return scaled if _same(apply_part(part, values, self._scales[name]), wanted) else None


def _same(given: np.ndarray, wanted: np.ndarray) -> bool:
    return given.shape == wanted.shape and np.array_equal(given, wanted)


def _arrangements(name: str, values: np.ndarray, wanted: np.ndarray) -> Iterator[Recipe]:
    """All orders of the axes of a source that can have the shape."""
    squeezed = [extent for extent in wanted.shape if extent != 1]
    for axes in itertools.permutations(range(values.ndim)):
        if [values.shape[axis] for axis in axes if values.shape[axis] != 1] == squeezed:
            yield _part(name, axes, wanted)


def _part(name: str, axes: Sequence[int], wanted: np.ndarray) -> Recipe:
    shape, dtype = list(wanted.shape), str(wanted.dtype)
    return {"source": name, "axes": list(axes), "shape": shape, "dtype": dtype}


def _rows(values: np.ndarray, wanted: np.ndarray) -> list[int] | None:
    """Which rows of a matrix, such as a table of embeddings, are those that are wanted."""
    if values.ndim != 2 or not wanted.ndim or values.shape[1] != wanted.shape[-1]:
        return None
    found: list[int] = []
    for row in wanted.reshape(-1, wanted.shape[-1]):
        alike = np.flatnonzero(values[:, 0].astype(wanted.dtype) == row[0])
        same = [at for at in alike if np.array_equal(values[at].astype(wanted.dtype), row)]
        if not same:
            return None
        found.append(int(same[0]))
    return found


def _factors(values: np.ndarray, part: Recipe, wanted: np.ndarray) -> np.ndarray | None:
    """Factors of the first axis that give exactly what is wanted, if there are any."""
    order = part["axes"]
    laid_out = wanted.reshape([values.shape[axis] for axis in order])
    back = laid_out.transpose(np.argsort(order)).reshape(len(values), -1)
    flat = values.reshape(len(values), -1)
    at = np.abs(flat).argmax(1)
    rows = np.arange(len(flat))
    with np.errstate(all="ignore"):
        first = (back[rows, at].astype("float64") / flat[rows, at]).astype("float32")
    if not np.allclose(flat * first[:, None], back, rtol=1e-5, atol=1e-30):
        return None
    found = first.copy()
    for row in rows:
        for step in sorted(range(-4, 5), key=abs):
            scale = (first[row : row + 1].view("int32") + np.int32(step)).view("float32")
            if np.array_equal(flat[row] * scale, back[row]):
                found[row] = scale[0]
                break
        else:
            return None
    return found
