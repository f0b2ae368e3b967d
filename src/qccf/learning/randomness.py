"""Random layers draw from a stream of their own, also where several clients train side by side in threads.

PyTorch's generator is one for the whole process, so what a layer draws from it depends on the other threads. Inside
`OwnRandomness` every random operation of this thread (dropout as a layer or as a function, noise, …) gets a generator
of its own instead.
"""

import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_GLOBAL_GENERATOR = threading.Lock()


class OwnRandomness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which the random operations of this thread depend only on the seed. It leaves PyTorch's own
    generator as it was. A generator that the model passes itself is used as it is."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator(device).manual_seed(seed)
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        self.operations += 1
        if any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**kwargs, "generator": self._generator})
        device = self._generator.device
        seed = int(torch.randint(2**62, (), generator=self._generator, device=device))
        with _GLOBAL_GENERATOR, torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            return func(*args, **kwargs)
