"""A dense layer of one's own whose number of inputs follows from the first call."""

from compiler.mxnet import np, npx
from compiler.mxnet.gluon import HybridBlock, Parameter


class Dense(HybridBlock):
    """x W^T + b, with as many inputs as the data have."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.weight = Parameter(shape=(units, -1), allow_deferred_init=True)
        self.bias = Parameter(shape=(units,), init="zeros")

    def infer_shape(self, x):
        """Called before the first forward; the parameters are initialized afterwards."""
        self.weight.shape = (self.weight.shape[0], x.shape[1])

    def forward(self, x):
        return npx.fully_connected(x, self.weight.data(), self.bias.data())


def main() -> None:
    """Let the first call give the shape."""
    net = Dense(4)
    net.initialize()
    print("before the first call:", net.weight)
    x = np.random.uniform(size=(2, 7))
    expected = net(x).asnumpy()
    print("after it:             ", net.weight)
    net.hybridize()
    print("largest difference:", abs(net(x).asnumpy() - expected).max())


if __name__ == "__main__":
    main()
