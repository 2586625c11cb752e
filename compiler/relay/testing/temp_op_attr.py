"""`relay.testing.temp_op_attr`: set an operator attribute in a `with` block."""

from __future__ import annotations

from typing import Any

from ..op.registry import get


class TempOpAttr:
    """Set an operator attribute, such as "FTVMLegalize", in a `with` block; restore it after."""

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self.op = get(op_name)
        self.attr_key = attr_key
        self.attr_value = attr_value
        self.older_attr: Any = None

    def __enter__(self) -> TempOpAttr:
        if self.op.has_attr(self.attr_key):
            self.older_attr = self.op.get_attr(self.attr_key)
            self.op.reset_attr(self.attr_key)
        self.op.set_attr(self.attr_key, self.attr_value)
        return self

    def __exit__(self, *_error: object) -> None:
        self.op.reset_attr(self.attr_key)
        if self.older_attr is not None:
            self.op.set_attr(self.attr_key, self.older_attr)
