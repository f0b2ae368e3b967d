"""5×5 convolutions for training small CNNs on CPUs, written by hand.

The convolutions take most of the time of a training run, and these are faster than PyTorch's
(`benchmarks.training_step` measures both). Winograd's algorithm needs a sixth of the multiplications, but the CPU
libraries that PyTorch uses (oneDNN, NNPACK) have it for 3×3 kernels only. Pooling and ReLU are part of the same pass
over memory. Where these kernels do not apply, the layers use PyTorch's operators, which compute the same function.
"""
