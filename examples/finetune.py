#!/usr/bin/env python3
"""Fine-tunes a classifier on what a chip will say: the CNN of golden/models with weights of few bits, on gen1.

    pip install torch onnx ./python
    python examples/finetune.py --bits 3

The weights are rounded to 3 bits, which costs accuracy. Training sees the loss of the chip's own outputs, bit for bit, and
the gradient of the module with rounded weights (npudiff.torch.simulate). After each step of the optimiser the weights are
written into the QDQ file again: `Export` below is what a project has anyway, its own exporter.

Trained is on the 128 images that calibrated the model; the 700 test images choose nothing. With --without-chip the same is
trained on the module alone, without the chip: what the chip in the loop is worth is the difference."""
import argparse
import pathlib
import tempfile

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F

import npudiff.torch

MODELS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "models"
LAYERS = ["stem", "depthwise", "pointwise", "residual", "head"]
# What a layer reads, in the quantised model: with the scale of that and of the weights a bias is quantised.
READS = {"stem": "image", "depthwise": "stem/relu", "pointwise": "depthwise/relu", "residual": "pointwise/relu", "head": "average"}


def digits(name):
    with np.load(MODELS / name) as file:
        return torch.from_numpy(file["image"]), torch.from_numpy(file["labels"])


def step_of(weight, bits):
    """What a step of a weight is worth: the codes are -n to n, symmetric."""
    return weight.detach().abs().max() / max(2 ** (bits - 1) - 1, 1)


class Network(nn.Module):
    """The CNN, with weights rounded to steps; the gradient passes the rounding."""

    def __init__(self, bits):
        super().__init__()
        constants = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy())
                     for t in onnx.load(MODELS / "cnn.float.onnx").graph.initializer}
        self.bits = bits
        self.weights = nn.ParameterDict({name: nn.Parameter(constants[f"{name}.weight"]) for name in LAYERS})
        self.biases = nn.ParameterDict({name: nn.Parameter(constants[f"{name}.bias"]) for name in LAYERS})

    def rounded(self, name):
        weight = self.weights[name]
        step = step_of(weight, self.bits)
        return weight + ((weight / step).round() * step - weight).detach()

    def conv(self, name, x, **how):
        return F.conv2d(x, self.rounded(name), self.biases[name], **how)

    def forward(self, image):
        x = F.relu(self.conv("stem", image, padding=1))
        x = F.relu(self.conv("depthwise", x, padding=1, groups=x.shape[1]))
        x = F.max_pool2d(F.relu(self.conv("pointwise", x)), 2)
        x = F.relu(x + self.conv("residual", x, padding=1))
        return F.linear(x.mean((2, 3)), self.rounded("head"), self.biases["head"])


class Export:
    """Writes the weights of a network into the quantised model; the scales of activations stay."""

    def __init__(self, path):
        self.path, self.model = path, onnx.load(MODELS / "cnn.w8a8.onnx")
        self.constants = {t.name: t for t in self.model.graph.initializer}

    def put(self, name, array):
        old = self.constants[name]
        old.CopyFrom(numpy_helper.from_array(array.reshape(tuple(old.dims)).astype(numpy_helper.to_array(old).dtype), name))

    def __call__(self, network):
        for name in LAYERS:
            weight = network.weights[name].detach()
            step = np.float32(step_of(weight, network.bits))
            codes = (weight / step).round().numpy()
            scale = np.float64(numpy_helper.to_array(self.constants[f"{READS[name]}_scale"])) * np.float64(step)
            self.put(f"{name}.weight_quantized", codes + 128)
            self.put(f"{name}.weight_scale", np.array(step))
            self.put(f"{name}.weight_zero_point", np.array(128))
            self.put(f"{name}.bias_quantized", np.rint(network.biases[name].detach().numpy() / scale))
            self.put(f"{name}.bias_quantized_scale", np.array(scale))
        onnx.save(self.model, self.path)
        return self.path


def moved(images):
    """Each image by up to one pixel."""
    padded = F.pad(images, (1, 1, 1, 1))
    offsets = torch.randint(0, 3, (len(images), 2)).tolist()
    return torch.stack([one[:, y:y + 8, x:x + 8] for one, (y, x) in zip(padded, offsets)])


def train(trained, parameters, epochs, rate):
    images, labels = digits("digits-calibration.npz")
    optimiser = torch.optim.Adam(parameters, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(32):
            optimiser.zero_grad()
            F.cross_entropy(trained(moved(images[batch])), labels[batch]).backward()
            optimiser.step()
        schedule.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chip", default="gen1")
    parser.add_argument("--bits", type=int, default=3, help="of a weight: 3 are the codes -3 to 3")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-chip", action="store_true", help="train on the module with rounded weights alone")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="the quantised model that came out")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    test = tuple(tensor.numpy() for tensor in digits("digits-test.npz"))
    with tempfile.TemporaryDirectory() as folder:
        network = Network(options.bits)
        export = Export(options.output or pathlib.Path(folder, "exported.onnx"))
        on_chip = npudiff.torch.simulate(export, options.chip, network)
        before = npudiff.Twin(export(network), options.chip).accuracy(*test)
        train(network if options.without_chip else on_chip, network.parameters(), options.epochs, options.rate)
        twin = npudiff.Twin(export(network), options.chip)
        after = twin.accuracy(*test)
    print(f"{options.chip}, weights of {options.bits} bits, seed {options.seed}, trained {'without' if options.without_chip else 'on'} the chip")
    print(f"before  {before}\nafter   {after}")
    for tensor, why in twin.marks.items():
        print(f"not known: {tensor}: {why}")


if __name__ == "__main__":
    main()
