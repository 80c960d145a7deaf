#!/usr/bin/env python3
"""Writes a network like MobileNetV2 with random weights, 71 layers, for tools/bench/explain.sh.
Usage: make_network.py FILE.onnx uint8|uint16 SIDE"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests/support"))

import onnx_write as ow

SEED = 19
BLOCKS = [(6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


class Network:
    def __init__(self, codes):
        self.rng, self.codes, self.nodes = np.random.default_rng(SEED), np.dtype(codes), []
        self.steps = np.iinfo(self.codes).max
        self.constants = {"low": np.float32(0), "high": np.float32(6), "weight zero": np.uint8(128),
                          "bias zero": np.int32(0)}

    def quantise(self, x, low, high):
        self.constants[f"{x}.scale"] = np.float32((high - low) / self.steps)
        self.constants[f"{x}.zero"] = self.codes.type(round(-low / (high - low) * self.steps))
        parameters = [f"{x}.scale", f"{x}.zero"]
        self.nodes.append(ow.node("QuantizeLinear", [x, *parameters], [f"{x}.codes"]))
        self.nodes.append(ow.node("DequantizeLinear", [f"{x}.codes", *parameters], [f"{x}.real"]))
        return f"{x}.real"

    def convolve(self, x, n_in, n_out, kernel, stride=1, group=1, clips=True):
        name = f"conv{len(self.nodes)}"
        fan = n_in // group * kernel * kernel
        self.constants[f"{name}.w"] = np.clip(np.rint(self.rng.standard_normal((n_out, n_in // group, kernel, kernel)) * 40 + 128),
                                              0, 255).astype(np.uint8)
        self.constants[f"{name}.w.scale"] = np.float32(1.4 / np.sqrt(fan) / 40)
        step = float(self.constants[f"{x[:-5]}.scale"]) * float(self.constants[f"{name}.w.scale"])
        self.constants[f"{name}.b"] = np.rint(self.rng.standard_normal(n_out) * 0.1 / step).astype(np.int32)
        self.constants[f"{name}.b.scale"] = np.float32(step)
        self.nodes.append(ow.node("DequantizeLinear", [f"{name}.w", f"{name}.w.scale", "weight zero"], [f"{name}.w.real"]))
        self.nodes.append(ow.node("DequantizeLinear", [f"{name}.b", f"{name}.b.scale", "bias zero"], [f"{name}.b.real"]))
        made = f"{name}.sum" if clips else name
        self.nodes.append(ow.node("Conv", [x, f"{name}.w.real", f"{name}.b.real"], [made], kernel_shape=[kernel] * 2,
                                  strides=[stride] * 2, pads=[kernel // 2] * 4, group=group))
        if clips:
            self.nodes.append(ow.node("Clip", [made, "low", "high"], [name]))
        return self.quantise(name, 0 if clips else -6, 6)

    def add(self, x, y):
        name = f"add{len(self.nodes)}"
        self.nodes.append(ow.node("Add", [x, y], [name]))
        return self.quantise(name, -8, 8)


def make(path, codes, side):
    net = Network(codes)
    x = net.quantise("x", -1, 1)
    x = net.convolve(net.convolve(x, 3, 32, 3, 2), 32, 32, 3, group=32)
    x, n = net.convolve(x, 32, 16, 1, clips=False), 16
    for times, n_out, repeats, stride in BLOCKS:
        for i in range(repeats):
            y = net.convolve(x, n, n * times, 1)
            y = net.convolve(y, n * times, n * times, 3, stride if i == 0 else 1, n * times)
            y = net.convolve(y, n * times, n_out, 1, clips=False)
            x, n = (net.add(x, y) if i > 0 else y), n_out
    x = net.convolve(x, n, 1280, 1)
    net.nodes.append(ow.node("GlobalAveragePool", [x], ["mean"]))
    x = net.quantise("mean", 0, 6)
    Path(path).write_bytes(ow.model(net.nodes, [ow.value_info("x", ow.FLOAT, [1, 3, side, side])],
                                    [ow.value_info(x, ow.FLOAT, [1, 1280, 1, 1])], net.constants))


make(sys.argv[1], sys.argv[2], int(sys.argv[3]))
