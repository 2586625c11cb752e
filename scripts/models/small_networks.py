"""Small networks in the style of public families, written in torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class CRNN(nn.Module):
    """Text recognition: convolutions, two-way recurrence over the width, classes per column."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(((1, 8), (8, 16), (16, 32), (32, 32))):
            layers += [nn.Conv2d(before, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU()]
            layers.append(nn.MaxPool2d(2, 2) if index < 2 else nn.MaxPool2d((2, 1), (2, 1)))
        self.features = nn.Sequential(*layers)
        self.recurrent = nn.LSTM(64, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(48, 37)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits per column."""
        x = self.features(x).flatten(1, 2).transpose(1, 2)
        return self.classes(self.recurrent(x)[0])


class DBNet(nn.Module):
    """Text detection: a pyramid whose levels are resized to the first, two upsampling heads."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 16, 24, 32)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.Hardswish())
            for a, b in itertools.pairwise(widths)
        )
        self.lateral = nn.ModuleList(nn.Conv2d(each, 16, 1) for each in widths[1:])
        self.smooth = nn.ModuleList(nn.Conv2d(16, 4, 3, 1, 1) for _ in widths[1:])
        self.head = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 2, 2), nn.ReLU(), nn.Conv2d(8, 1, 3, 1, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probability of text per two pixels."""
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        levels = [lateral(each) for lateral, each in zip(self.lateral, levels)]
        for index in (2, 1, 0):
            size = levels[index].shape[2:]
            levels[index] = levels[index] + F.interpolate(
                levels[index + 1], size=size, mode="nearest"
            )
        size = levels[0].shape[2:]
        levels = [
            F.interpolate(smooth(each), size=size, mode="bilinear", align_corners=False)
            for smooth, each in zip(self.smooth, levels)
        ]
        return self.head(torch.cat(levels, 1))


class UNet(nn.Module):
    """Segmentation whose skips are padded to the size of what is upsampled, or the other way."""

    def __init__(self, widths: Sequence[int] = (3, 8, 16, 32)) -> None:
        super().__init__()
        self.down = nn.ModuleList(_double(a, b) for a, b in itertools.pairwise(widths))
        pairs = [(b, a) for a, b in itertools.pairwise(widths)][::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(_double(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[1], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two classes per pixel."""
        skips = []
        for index, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if index else x)
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1]):
            x = up(x)
            height, width = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
            x = F.pad(x, [width // 2, width - width // 2, height // 2, height - height // 2])
            x = join(torch.cat([skip, x], 1))
        return self.head(x)


def _double(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, 1, 1),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, 1, 1),
        nn.ReLU(),
    )


class ESPCN(nn.Module):
    """Super-resolution by a pixel shuffle."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, 1, 2),
            nn.Tanh(),
            nn.Conv2d(16, 8, 3, 1, 1),
            nn.Tanh(),
            nn.Conv2d(8, scale**2, 3, 1, 1),
            nn.PixelShuffle(scale),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of three times the height and width."""
        return self.body(x)


class EDSR(nn.Module):
    """Super-resolution by residual blocks, added to a bicubic upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 12, 3, 1, 1)
        self.blocks = nn.ModuleList(_double(12, 12) for _ in range(3))
        self.tail = nn.Sequential(
            nn.Conv2d(12, 12, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(3, 3, 3, 1, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of twice the height and width."""
        y = self.head(x)
        for block in self.blocks:
            y = y + 0.1 * block(y)
        return self.tail(y) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)


class RDN(nn.Module):
    """Residual dense blocks: each convolution reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 8, 3, 1, 1)
        self.dense = nn.ModuleList(nn.Conv2d(8 + 4 * each, 4, 3, 1, 1) for each in range(4))
        self.fuse = nn.Conv2d(24, 8, 1)
        self.tail = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of twice the height and width."""
        x = first = self.head(x)
        for layer in self.dense:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return self.tail(first + self.fuse(x))


class DLRM(nn.Module):
    """Recommendation by dot products of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 8) for _ in range(5))
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(23, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(6, 6, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """A probability per row."""
        x = self.bottom(dense)
        rows = [x, *(table(sparse[:, index]) for index, table in enumerate(self.tables))]
        stack = torch.stack(rows, 1)
        dots = torch.bmm(stack, stack.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, dots], 1))


class DeepFM(nn.Module):
    """Recommendation by a factorization machine and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.factors = nn.Embedding(100, 1), nn.Embedding(100, 8)
        self.deep = nn.Sequential(
            nn.Linear(56, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
        )
        self.register_buffer("offsets", torch.arange(7) * 14)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """A probability per row of seven fields."""
        fields = fields + self.offsets
        rows = self.factors(fields)
        pairs = (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1, keepdim=True) / 2
        total = self.linear(fields).sum(1) + pairs + self.deep(rows.flatten(1))
        return torch.sigmoid(total)


class DIN(nn.Module):
    """Recommendation by attention of a candidate over a history of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(60, 8)
        self.score = nn.Sequential(nn.Linear(32, 16), nn.PReLU(), nn.Linear(16, 1))
        self.top = nn.Sequential(nn.Linear(16, 16), nn.PReLU(16), nn.Linear(16, 2))

    def forward(self, history: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        """Probabilities of two classes; 0 is no item."""
        past, now = self.items(history), self.items(candidate)
        wide = now[:, None].expand(-1, history.shape[1], -1)
        scores = self.score(torch.cat([wide, past, wide - past, wide * past], -1))[..., 0]
        weights = scores.masked_fill(history == 0, -1e4).softmax(-1)
        return self.top(torch.cat([torch.bmm(weights[:, None], past)[:, 0], now], -1)).softmax(-1)


class GCN(nn.Module):
    """Graph convolutions by scattered sums with normalized degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(7, 16), nn.Linear(16, 3)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Three values per node; edges are (2, count), sources and targets."""
        loops = torch.arange(x.shape[0])
        source, target = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
        degree = torch.zeros(x.shape[0]).scatter_add(
            0, target, torch.ones_like(target, dtype=torch.float32)
        )
        scale = degree.rsqrt()
        weights = (scale[source] * scale[target])[:, None]
        for index, layer in enumerate(self.layers):
            y = layer(x)
            x = torch.zeros_like(y).index_add(0, target, y[source] * weights)
            x = x.relu() if index == 0 else x
        return x


class GAT(nn.Module):
    """Graph attention: a softmax over the edges into each node."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.left, self.right = nn.Linear(7, 24), nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Twenty-four values per node in four heads."""
        source, target = edges[0], edges[1]
        y = self.project(x).view(-1, 4, 6)
        scores = F.leaky_relu(self.left(y)[source] + self.right(y)[target], 0.2)[..., 0]
        index = target[:, None].expand(-1, 4)
        top = torch.full((x.shape[0], 4), -1e9).scatter_reduce(0, index, scores, "amax")
        scores = (scores - top[target]).exp()
        total = torch.zeros(x.shape[0], 4).scatter_add(0, index, scores)
        values = (scores / total[target])[..., None] * y[source]
        return torch.zeros_like(y).index_add(0, target, values).flatten(1)


class GraphSAGE(nn.Module):
    """Means of neighbors, and a pooling of the nodes of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other, self.head = nn.Linear(7, 16), nn.Linear(7, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Two values of the graph."""
        index = edges[1][:, None].expand(-1, 7)
        total = torch.zeros_like(x).scatter_add(0, index, x[edges[0]])
        count = torch.zeros(x.shape[0], 1).scatter_add(
            0, edges[1][:, None], torch.ones(edges.shape[1], 1)
        )
        x = F.normalize(self.own(x) + self.other(total / count.clamp(min=1)), dim=-1).relu()
        return self.head(x.max(0, keepdim=True).values + x.mean(0, keepdim=True))


class TCN(nn.Module):
    """Dilated causal convolutions with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(8 if each else 4, 8, 3, padding=2 << each, dilation=1 << each)
            for each in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Signals of eight channels and the same length."""
        for index, layer in enumerate(self.layers):
            y = layer(x)[:, :, : -(2 << index)].relu()
            x = x + y if index else y
        return x


class WaveNet(nn.Module):
    """Gated dilated convolutions whose skips are cut to the last length."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 16, 1)
        self.gates = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=1 << each) for each in range(5))
        self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sixteen logits per remaining sample."""
        x, total = self.first(x), 0
        for gate, skip in zip(self.gates, self.skips):
            left, right = gate(x).chunk(2, 1)
            y = left.tanh() * right.sigmoid()
            x = y + x[:, :, -y.shape[2] :]
            part = skip(y)
            total = part if isinstance(total, int) else total[:, :, -part.shape[2] :] + part
        return self.last(F.relu(total))


class HiFiGAN(nn.Module):
    """A vocoder: transposed convolutions, each with residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(20, 32, 7, 1, 3), nn.Conv1d(8, 1, 7, 1, 3)
        self.ups = nn.ModuleList(
            [nn.ConvTranspose1d(32, 16, 16, 8, 4), nn.ConvTranspose1d(16, 8, 4, 2, 1)]
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, 3, 1, each, each) for each in (1, 3, 5))
            for width in (16, 8)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sixteen samples per frame."""
        x = self.first(x)
        for up, block in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            for layer in block:
                x = x + layer(F.leaky_relu(x, 0.1))
        return self.last(F.leaky_relu(x)).tanh()


class Spectrogram(nn.Module):
    """A short-time Fourier transform by convolution, mel filters, and a small recognizer."""

    def __init__(self, native: bool) -> None:
        super().__init__()
        self.native = native
        angle = torch.arange(33)[:, None] * torch.arange(64)[None] * (2 * torch.pi / 64)
        window = torch.hann_window(64)
        self.register_buffer("kernel", torch.cat([angle.cos(), -angle.sin()])[:, None] * window)
        self.register_buffer("window", window)
        self.mel = nn.Linear(33, 12)
        self.net = nn.Sequential(nn.Conv1d(12, 16, 3, 2, 1), nn.ReLU(), nn.Conv1d(16, 5, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Five values per two frames."""
        if self.native:
            parts = torch.stft(x, 64, 16, window=self.window, center=False, return_complex=True)
            power = torch.view_as_real(parts).pow(2).sum(-1)
        else:
            wide = F.pad(x[:, None], (32, 32), mode="reflect")
            power = F.conv1d(wide, self.kernel, stride=16).pow(2).unflatten(1, (2, 33)).sum(1)
        mel = (self.mel(power.transpose(1, 2)).abs() + 1e-6).log()
        mel = (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-5)
        return self.net(mel.transpose(1, 2))


class Conformer(nn.Module):
    """Subsampling, attention and gated depthwise convolutions over frames."""

    def __init__(self) -> None:
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU())
        self.project = nn.Linear(16, 24)
        self.blocks = nn.ModuleList(_ConformerBlock(24) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Encoded frames, a fourth of the given; frames have twenty mel bands."""
        x = self.sub(x[:, None])
        x = self.project(x.transpose(1, 2).flatten(2))
        for block in self.blocks:
            x = block(x)
        return x


class _ConformerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depth, self.batch = (
            nn.Conv1d(width, width, 7, 1, 3, groups=width),
            nn.BatchNorm1d(width),
        )
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = (
            self.qkv(self.norms[0](x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = F.glu(self.wide(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.narrow(F.silu(self.batch(self.depth(y)))).transpose(1, 2)
        return x + 0.5 * self.feed(self.norms[2](x))


class Generator(nn.Module):
    """Residual image translation with instance normalization and reflected borders."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(3),
            nn.Conv2d(3, 8, 7),
            nn.InstanceNorm2d(8, affine=True),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.InstanceNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1),
            nn.InstanceNorm2d(8),
            nn.ReLU(),
            nn.ReflectionPad2d(3),
            nn.Conv2d(8, 3, 7),
            nn.Tanh(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of the same size, odd ones one larger."""
        return self.body(x)


class DCGAN(nn.Module):
    """Images from noise of any height and width."""

    def __init__(self) -> None:
        super().__init__()
        widths, layers = (16, 16, 12, 8), []
        for before, after in itertools.pairwise(widths):
            layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of sixteen times the height and width."""
        return self.body(x)


class YOLO(nn.Module):
    """Two levels of boxes from grids that are computed from the sizes of the features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 6, 2, 2), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU()
        )
        self.down = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.SiLU())
        self.cut, self.mix = nn.Conv2d(16, 8, 1), nn.Conv2d(48, 16, 1)
        self.heads = nn.ModuleList([nn.Conv2d(24, 21, 1), nn.Conv2d(16, 21, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Boxes of both levels: center, size, objectness, two classes."""
        fine = self.stem(x)
        coarse = self.cut(self.down(fine))
        pools = [coarse]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        pools += [coarse, coarse]
        coarse = F.silu(self.mix(torch.cat(pools, 1)))
        up = F.interpolate(coarse[:, :8], size=fine.shape[2:], mode="nearest")
        outputs = []
        for level, (head, y) in enumerate(zip(self.heads, (torch.cat([fine, up], 1), coarse))):
            y = head(y)
            batch, _, height, width = y.shape
            y = y.view(batch, 3, 7, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack([columns, rows], -1)[None, None].float()
            centers = (y[..., :2] * 2 - 0.5 + grid) * (4 << level)
            boxes = torch.cat([centers, (y[..., 2:4] * 2) ** 2 * 16, y[..., 4:]], -1)
            outputs.append(boxes.reshape(batch, -1, 7))
        return torch.cat(outputs, 1)


class WindowSR(nn.Module):
    """Super-resolution with shifted window attention on images padded to whole windows."""

    def __init__(self, window: int = 4, width: int = 12) -> None:
        super().__init__()
        self.window, self.width = window, width
        self.first, self.qkv = (
            nn.Conv2d(3, width, 3, 1, 1),
            nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2)),
        )
        self.norm, self.out = (
            nn.LayerNorm(width),
            nn.ModuleList(nn.Linear(width, width) for _ in range(2)),
        )
        self.last = nn.Sequential(nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images of twice the height and width."""
        size, (batch, _, height, width) = self.window, x.shape
        x = F.pad(
            x, (0, (size - width % size) % size, 0, (size - height % size) % size), mode="reflect"
        )
        x = self.first(x)
        rows, columns = x.shape[2], x.shape[3]
        y = x.permute(0, 2, 3, 1)
        for index, (qkv, out) in enumerate(zip(self.qkv, self.out)):
            z = torch.roll(self.norm(y), (-2 * index, -2 * index), (1, 2))
            z = z.view(batch, rows // size, size, columns // size, size, self.width)
            z = qkv(z.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, self.width))
            z = z.view(-1, size * size, 3, 3, self.width // 3).permute(2, 0, 3, 1, 4)
            z = ((z[0] @ z[1].transpose(-2, -1)) * 0.5).softmax(-1) @ z[2]
            z = out(z.transpose(1, 2).reshape(-1, size * size, self.width))
            z = z.view(batch, rows // size, columns // size, size, size, self.width)
            z = z.permute(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, self.width)
            y = y + torch.roll(z, (2 * index, 2 * index), (1, 2))
        x = self.last(x + y.permute(0, 3, 1, 2))
        return x[:, :, : 2 * height, : 2 * width]
