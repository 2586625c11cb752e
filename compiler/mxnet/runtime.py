"""Names of `mxnet.runtime`."""


class Features:
    """Optional parts that MXNet was built with: none."""

    def is_enabled(self, name: str) -> bool:
        """Whether a part is there."""
        return False
