"""Normalization layers."""

from __future__ import annotations

from typing import Any

from ... import np, npx
from ...array.ndarray import ndarray
from ..hybrid_block import HybridBlock
from ..parameter import Parameter


def _vector(name: str, size: int, init: Any, trained: bool = True) -> Parameter:
    kind = "write" if trained else "null"
    return Parameter(name, kind, shape=(size,), init=init, allow_deferred_init=True)


class _Scaled(HybridBlock):
    """Layers with gamma and beta along one axis."""

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **names: Any,
    ) -> None:
        super().__init__(**names)
        self._axis = axis
        self._epsilon = epsilon
        self.gamma = _vector("gamma", in_channels, gamma_initializer, scale)
        self.beta = _vector("beta", in_channels, beta_initializer, center)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(axis={self._axis}, eps={self._epsilon})"

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        for param in self._reg_params.values():
            param.shape = (x.shape[self._axis],)


class BatchNorm(_Scaled):
    """Normalized along all axes but one, with the moving statistics."""

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **names: Any,
    ) -> None:
        initial = beta_initializer, gamma_initializer
        super().__init__(axis, epsilon, center, scale, *initial, in_channels, **names)
        self._kwargs: dict[str, Any] = {
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
            "axis": axis,
        }
        self.running_mean = _vector("running_mean", in_channels, running_mean_initializer, False)
        self.running_var = _vector("running_var", in_channels, running_variance_initializer, False)

    def forward(self, x: ndarray) -> ndarray:
        own = (self.gamma, self.beta, self.running_mean, self.running_var)
        gamma, beta, mean, var = (param.data(x.device) for param in own)
        return npx.batch_norm(x, gamma, beta, mean, var, **self._kwargs)


class SyncBatchNorm(BatchNorm):
    """Batch norm; at inference there is nothing to synchronize."""

    def __init__(self, in_channels: int = 0, num_devices: Any = None, **kwargs: Any) -> None:
        super().__init__(in_channels=in_channels, **kwargs)


class LayerNorm(_Scaled):
    """Normalized along one axis."""

    def forward(self, x: ndarray) -> ndarray:
        gamma, beta = self.gamma.data(x.device), self.beta.data(x.device)
        return npx.layer_norm(x, gamma, beta, axis=self._axis, eps=self._epsilon)


class GroupNorm(_Scaled):
    """Normalized over groups of channels; what follows their number is as of `LayerNorm`."""

    def __init__(self, num_groups: int = 1, *args: Any, **kwargs: Any) -> None:
        super().__init__(1, *args, **kwargs)
        self._num_groups = num_groups

    def forward(self, x: ndarray) -> ndarray:
        gamma, beta = self.gamma.data(x.device), self.beta.data(x.device)
        return npx.group_norm(x, gamma, beta, num_groups=self._num_groups, eps=self._epsilon)


class InstanceNorm(_Scaled):
    """Normalized over the spatial axes of every channel; parameters are those of `LayerNorm`."""

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(axis, epsilon, center, scale, *args, **kwargs)

    def forward(self, x: ndarray) -> ndarray:
        gamma, beta = self.gamma.data(x.device), self.beta.data(x.device)
        if self._axis == 1:
            return npx.instance_norm(x, gamma, beta, eps=self._epsilon)
        moved = np.swapaxes(x, 1, self._axis)
        result = npx.instance_norm(moved, gamma, beta, eps=self._epsilon)
        return np.swapaxes(result, 1, self._axis)
