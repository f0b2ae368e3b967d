"""5×5 convolutions for training small CNNs on CPUs, written by hand.

The convolutions take most of the time of a training run, and these are faster than PyTorch's
(`benchmarks.training_step` measures both). Fourier transforms need an eighth of the multiplications, but the CPU
libraries that PyTorch uses (oneDNN, NNPACK) have nothing of the kind for small images. Pooling and ReLU are part of
the same pass over memory. Where these kernels do not apply, the layers use PyTorch's operators, which compute the same
function.
"""
