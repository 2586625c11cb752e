"""The devices that a library runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.runtime import FactoryModule


def devices_of(library: FactoryModule) -> list[Any]:
    """The first device of each kind that a library was built for."""
    import tvm

    return [tvm.device(kind, 0) for kind in library.metadata.devices]
