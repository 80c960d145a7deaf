#!/usr/bin/env python3
"""Makes golden/verdict: one small model for each way in which a provider runs a quantised graph otherwise than one operator at a
time with the model's encodings, and which is no fault of the device.

    conv_relu.u8   Conv, then Relu with a quantiser of its own: one operation
    silu.u8        x times Sigmoid(x): one function
    tanh.u16       Tanh, Conv: the provider writes and reads Tanh with an encoding of its own

NAME.float.onnx is the model before quantisation, NAME.npz its inputs. Everything follows from fixed seeds.
Pinned as tools/oracles/make_models.requirements.txt has it: onnx, onnxruntime, numpy.

    VENV/bin/python tools/oracles/make_verdict_models.py
"""

import pathlib

import numpy as np
import onnx

import healthy_networks as networks

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "golden" / "verdict"
N_SAMPLES = 6


def conv(n, kernel=3, out=6):
    _, c, height, width = n.shape
    weight = n.constant(n.normal(out, c, kernel, kernel, spread=(c * kernel * kernel) ** -0.5), "weight")
    n.add("Conv", [n.tensor, weight, n.constant(n.normal(out, spread=0.2), "bias")], (1, out, height, width),
          kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)  # fmt: skip


def conv_relu(n):
    conv(n)
    n.add("Relu", [n.tensor], n.shape)
    conv(n)


def silu(n):
    conv(n)
    networks.silu(n)
    conv(n)


def tanh(n):
    n.add("Tanh", [n.tensor], n.shape)
    conv(n)


MODELS = {"conv_relu.u8": (1, conv_relu, np.uint8), "silu.u8": (2, silu, np.uint8), "tanh.u16": (3, tanh, np.uint16)}


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, (seed, grow, code) in MODELS.items():
        rng = np.random.default_rng(seed)
        n = networks.Network(rng)
        n.shapes["image"] = (1, 3, 8, 8)
        grow(n)
        data = [rng.normal(size=n.shapes["image"]).astype(np.float32) for _ in range(16)]
        model = networks.float_model(n)
        quantised = networks.Quantiser(n, networks.calibrate(model, data), code, False, False, False).write()
        onnx.save(model, FOLDER / f"{name.partition('.')[0]}.float.onnx")
        onnx.save(quantised, FOLDER / f"{name}.onnx")
        np.savez(FOLDER / f"{name}.npz", image=np.concatenate(data[:N_SAMPLES]))


if __name__ == "__main__":
    main()
