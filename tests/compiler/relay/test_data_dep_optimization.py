"""Conversions to sparse operators are named and refused."""

from __future__ import annotations

import pytest

from compiler import relay
from compiler.errors import UnsupportedRelayOperatorError


@pytest.mark.parametrize("name", ["bsr_dense", "bsr_conv2d", "simplify_fc_transpose"])
def test_a_conversion_says_what_to_do_instead(name):
    conversion = getattr(relay.data_dep_optimization, name)
    with pytest.raises(UnsupportedRelayOperatorError, match=rf"{name}\.convert is not supported"):
        conversion.convert(None, {})
