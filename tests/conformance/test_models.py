"""Every model can be built, counted, evaluated and trained."""

import pytest
import torch

from qccf.learning.models.registry import MODELS, build_model, count_values
from tests.conformance.entries import entries

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8)]
NAMES = entries(MODELS, "tests.helpers.tiny:Tiny")


def fitting_shape(model: torch.nn.Module) -> tuple[int, ...]:
    """The first shape of images that the model accepts."""
    for shape in SHAPES:
        try:
            model(torch.zeros(2, *shape))
        except RuntimeError:
            continue
        return shape
    pytest.fail(f"the model accepts none of {SHAPES}")


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_weights(name: str) -> None:
    first, again, other = (
        torch.cat([p.detach().reshape(-1) for p in build_model(name, seed).parameters()]) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_counted_without_weights(name: str) -> None:
    assert count_values(name).parameters == sum(p.numel() for p in build_model(name, 0).parameters())


@pytest.mark.parametrize("name", NAMES)
def test_scores_have_a_gradient_for_every_parameter(name: str) -> None:
    model = build_model(name, 0)
    torch.manual_seed(0)
    scores = model(torch.rand(4, *fitting_shape(model)))
    assert scores.ndim == 2
    assert len(scores) == 4
    torch.nn.functional.cross_entropy(scores, torch.zeros(4, dtype=torch.int64)).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


class ComputesWhileBuilt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        self.rates = [rate.item() for rate in torch.linspace(0.0, 1.0, 3)]


def test_a_model_that_computes_while_it_is_built_is_counted() -> None:
    assert count_values("tests.conformance.test_models:ComputesWhileBuilt").parameters == 650
