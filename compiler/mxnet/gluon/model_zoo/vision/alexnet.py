"""AlexNet: Krizhevsky, "One weird trick" (2014)."""

from __future__ import annotations

from ... import nn
from .classifier import Classifier, variant


class AlexNet(Classifier):
    """AlexNet."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.HybridSequential(
            nn.Conv2D(64, 11, 4, 2, activation="relu"),
            nn.MaxPool2D(3, 2),
            nn.Conv2D(192, 5, padding=2, activation="relu"),
            nn.MaxPool2D(3, 2),
            nn.Conv2D(384, 3, padding=1, activation="relu"),
            nn.Conv2D(256, 3, padding=1, activation="relu"),
            nn.Conv2D(256, 3, padding=1, activation="relu"),
            nn.MaxPool2D(3, 2),
            nn.Flatten(),
            nn.Dense(4096, activation="relu"),
            nn.Dropout(0.5),
            nn.Dense(4096, activation="relu"),
            nn.Dropout(0.5),
        )
        self.output = nn.Dense(classes)


variant(AlexNet, "alexnet")
