"""Models as users write them: with BatchNorm, dropout, functions that draw, frozen and unusual outputs."""

import torch
from torch import nn
from torch.nn import functional


class Normed(nn.Module):
    """BatchNorm, dropout, and a constant that is not part of the state. 8×8 images, ten classes."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, 10)
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, images):
        return self.head(self.dropout(functional.relu(self.norm(self.hidden(images.flatten(1) * self.scale)))))


class Dropped(Normed):
    """The same with dropout."""

    def __init__(self) -> None:
        super().__init__(dropout=0.4)


class Functional(nn.Module):
    """Draws in functions, with and without a generator argument, also when it is evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images):
        flat = functional.dropout(images.flatten(1), 0.3, training=self.training)
        return self.layer(flat + 0.01 * torch.randn_like(flat)) + 0.01 * torch.rand(len(flat), 1)


class Counting(nn.Module):
    """Its output depends on how often it was used, if nobody sets its counter back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("uses", torch.zeros((), dtype=torch.int64))

    def forward(self, images):
        if self.training:
            self.uses += 1
        return self.layer(images.flatten(1)) / (1.0 + self.uses)


class PerPixel(nn.Module):
    """A segmentation model, which is no classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 10, 1)

    def forward(self, images):
        return self.layer(images)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(10)

    def forward(self, images):
        return self.layer(images.flatten(1))


class Wrong(nn.Module):
    """Its forward has a mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(63, 10)

    def forward(self, images):
        return self.layer(images.flatten(1))


MADE = Normed()


def not_a_model():
    return 3
