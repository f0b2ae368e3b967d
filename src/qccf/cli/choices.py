"""What can be chosen by name, with half a line about each.

The registries hold the same names, but importing them loads NumPy, and help and completion must be fast. A test
compares these tables with the registries.
"""

PRESETS = {
    "femnist": "handwritten characters, 62 classes: the paper's first task",
    "cifar10": "colour photographs, 10 classes: the paper's second task",
    "quick": "a small federation on synthetic handwriting, for a first look",
    "lean": "the first task with the least energy to an accuracy that we found",
    "3gpp": "phones, boards and laptops in a 5G cell: 100 MHz as resource blocks, thirty seconds a round",
    "iot": "microcontrollers on 180 kHz each, ten seconds a round",
    "paper-table": "Table I to the letter; needs a codec such as update+entropy (erratum E1)",
}

POLICIES = {
    "qccf": "decides clients, channels, bits and CPU frequencies together",
    "no-quantization": "uploads 32-bit floats",
    "channel-allocate": "as many bits as the channel carries before the deadline",
    "principle": "bits by DAdaQuant's rule, which ignores the radio",
    "same-size": "qccf that takes all datasets to be as large as the largest",
    "fixed-bits": "the same number of bits in every upload",
}

CODECS = {
    "model": "the model with one range, as in the paper",
    "update": "its difference from the global model",
    "block": "the model with a range for every 128 values",
    "update+block": "the difference, with a range for every 128 values",
    "model+entropy": "the model, entropy-coded",
    "update+entropy": "the difference, entropy-coded",
    "block+entropy": "the model, entropy-coded with a scale per layer",
    "update+block+entropy": "the difference, entropy-coded with a scale per layer",
    "sparse": "the difference, of which few values are sent: the fewest bits",
}

SERVER_OPTIMIZERS = {
    "average": "the weighted mean of what arrived is the next model",
    "fedavgm": "momentum on the mean change of the model",
    "fedadam": "a step size of its own for each parameter",
    "fedyogi": "fedadam with a slower memory of large changes",
    "fedexp": "longer steps where clients point in different directions",
}

AGGREGATION_RULES = {
    "mean": "weighted by data; changes much longer than usual are clipped",
    "trimmed-mean": "the mean of each value without its extremes",
    "median": "the median of each value",
    "krum": "the one client that is nearest to the others",
    "multi-krum": "the mean of the clients that are nearest to the others",
}

ATTACKS = {
    "none": "everybody is honest",
    "scaled-update": "a change of the model many times as long",
    "sign-flip": "the change in the opposite direction",
    "label-flip": "training with wrong labels",
    "noise": "random values in place of the change",
    "lying-statistics": "an honest change with wrong statistics",
}

DATASETS = {
    "handwriting": "synthetic characters, 62 classes; needs no download",
    "emnist": "handwritten characters, 62 classes, writers unknown",
    "femnist": "handwritten characters, 62 classes, with their writers",
    "mnist": "handwritten digits, 10 classes",
    "fashion-mnist": "grey images of clothing, 10 classes",
    "cifar10": "colour photographs, 10 classes",
}

METERS = {
    "powercap": "the processor's own counters (RAPL); reading them usually needs root",
    "battery": "a battery while it discharges: the power of the whole machine",
}
