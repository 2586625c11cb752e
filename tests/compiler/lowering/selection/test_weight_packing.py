from __future__ import annotations

import threading

import numpy as np
import pytest
from tvm import relax

from compiler.ir.constants import array_of
from compiler.lowering.selection.weight_packing import pack, packing_in_background

SHAPE = (256, 512)


def weights(count):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(SHAPE).astype("float32") for _ in range(count)]


def transposed(ops, array):
    return ops.transpose(array, (1, 0))


def test_weights_that_are_packed_alike_are_complete_after_the_block():
    arrays = weights(3)
    with packing_in_background():
        packed = [pack(None, relax.const(each), transposed, "transposed") for each in arrays]
    for array, constant in zip(arrays, packed, strict=True):
        np.testing.assert_array_equal(array_of(constant), array.T)


def test_only_weights_after_the_first_of_a_kind_are_packed_by_other_threads():
    threads = []

    def noted(_, array):
        threads.append(threading.current_thread())
        return array[:1]

    own = threading.current_thread()
    first, second = (relax.const(each) for each in weights(2))
    with packing_in_background():
        pack(None, first, noted, "rows")
        pack(None, second, noted, "other rows")
        pack(None, second, noted)
        small = pack(None, relax.const(np.ones(3, "float32")), noted, "rows")
        assert threads == [own] * 4 and array_of(small).shape == (1,)
        pack(None, second, noted, "rows")
    assert len(threads) == 5 and threads[-1] is not own
    pack(None, second, noted, "rows")
    assert threads[-1] is own


def test_an_error_in_another_thread_is_raised():
    first, second = (relax.const(each) for each in weights(2))
    made = iter([np.zeros(3, "float32"), np.zeros(4, "float32")])
    with pytest.raises(ValueError, match="packed alike"):  # noqa: SIM117
        with packing_in_background():
            pack(None, first, lambda *_: next(made), "numbers")
            pack(None, second, lambda *_: next(made), "numbers")
