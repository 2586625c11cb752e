"""A block is hybridized: its forward is traced at the first call, later calls run compiled."""

import time

from compiler.mxnet import np, npx
from compiler.mxnet.gluon import HybridBlock, nn


class Residual(HybridBlock):
    """A residual block of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(8, 3, padding=1)
        self.norm = nn.BatchNorm()

    def forward(self, x):
        y = npx.relu(self.norm(self.conv(x)))
        return x + y if x.shape == y.shape else y


def main() -> None:
    """Call the block as it stands, then hybridized."""
    net = nn.HybridSequential(Residual(), Residual(), nn.GlobalAvgPool2D(), nn.Dense(4))
    net.initialize()
    x = np.random.uniform(size=(1, 3, 16, 16))
    expected = net(x).asnumpy()

    net.hybridize(static_alloc=True, static_shape=True)
    result = net(x).asnumpy()
    print("largest difference:", abs(result - expected).max())

    start = time.perf_counter()
    for _ in range(100):
        net(x)
    print(f"a call takes {(time.perf_counter() - start) * 1e4:.0f} microseconds")
    if net.cached_op is not None:
        print(net.cached_op.cache_info())


if __name__ == "__main__":
    main()
