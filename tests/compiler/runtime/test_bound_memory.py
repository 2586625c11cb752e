from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler.runtime.bound_memory import BoundMemory, copied_where_bound


def tensor(count: int = 64):
    return tvm.runtime.tensor(np.arange(count, dtype="float32"))


def view(source, start: int, stop: int):
    return tvm.runtime.from_dlpack(np.from_dlpack(source)[start:stop])


def test_bound_tensors_and_their_views_are_found():
    first, second = tensor(), tensor()
    memory = BoundMemory([first, second])
    for bound in (first, second, first._create_view((8, 8)), view(second, 32, 64)):
        assert memory.holds(bound)
    assert not memory.holds(tensor())


@pytest.mark.parametrize("index", [0, 1])
def test_a_replaced_tensor_is_no_longer_bound(index):
    bound, other = [tensor(), tensor()], tensor()
    memory = BoundMemory(bound)
    memory.bind(index, other)
    assert memory.holds(other)
    assert not memory.holds(bound[index])
    assert memory.holds(bound[1 - index])


def test_a_tensor_after_a_bound_view_is_not_bound():
    whole = tensor()
    memory = BoundMemory([view(whole, 0, 16), view(whole, 0, 48), view(whole, 16, 20)])
    assert memory.holds(view(whole, 32, 64))
    assert not memory.holds(view(whole, 48, 64))


def test_unset_tensors_hold_nothing():
    assert not BoundMemory([None, None]).holds(tensor())


def test_only_results_that_alias_are_copied():
    weight, given, new = tensor(), tensor(), tensor()
    results = copied_where_bound([weight, given, new], [given], BoundMemory([weight]))
    assert results[2] is new
    assert results[0].data_ptr() != weight.data_ptr()
    assert results[1].data_ptr() != given.data_ptr()
    np.testing.assert_array_equal(results[0].numpy(), weight.numpy())
