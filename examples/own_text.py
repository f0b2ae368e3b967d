"""Texts of one's own, and a small classifier with an embedding and dropout: is a review good or bad?

qccf run quick --set data.dataset=examples.own_text:reviews --set learning.model=examples.own_text:BagOfWords \
    --set learning.optimizer=adamw --set learning.learning_rate=0.02
"""

import numpy as np
import torch
from torch import nn

from qccf.learning.datasets import Dataset

GOOD = ["bright", "warm", "fresh", "clever", "lovely", "quick", "neat", "strong"]
BAD = ["dull", "cold", "stale", "clumsy", "awful", "slow", "messy", "weak"]
OTHER = ["the", "a", "film", "meal", "phone", "was", "is", "very", "quite", "and", "but", "price", "plot", "taste"]
WORDS = {word: number for number, word in enumerate(["<pad>", *GOOD, *BAD, *OTHER])}
LENGTH = 12


def reviews(samples: int = 4000) -> Dataset:
    """Twelve words each; two of them, among words that mean nothing, decide the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, samples)
    texts = [" ".join([*rng.choice(OTHER, 8), *rng.choice(GOOD if label else BAD, 2)]) for label in labels]
    tokens = np.array([tokenised(text) for text in texts], dtype=np.int64)
    cut = samples * 3 // 4
    return Dataset(
        name="own-reviews",
        train_images=tokens[:cut],
        train_labels=labels[:cut],
        train_writers=None,
        test_images=tokens[cut:],
        test_labels=labels[cut:],
        class_names=("bad", "good"),
        synthetic=True,
        source="made reviews of twelve words",
    )


def tokenised(text: str) -> list[int]:
    numbers = [WORDS[word] for word in text.split()][:LENGTH]
    return numbers + [0] * (LENGTH - len(numbers))


class BagOfWords(nn.Module):
    """The mean of the words' embeddings, dropout, one linear layer."""

    def __init__(self, width: int = 16, dropout: float = 0.2) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        known = (tokens > 0).unsqueeze(2)
        mean = (self.words(tokens) * known).sum(1) / known.sum(1).clamp(min=1)
        return self.head(self.dropout(mean))
