#!/usr/bin/env python3
"""Makes golden/align: a BatchNormalization behind a ConvTranspose, which `npudiff align` folds, and near misses that it must not
fold. Each has an Add of a constant for each channel between, and quantisers of its own for each of the three.

Pinned: onnx 1.23.2, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script writes the same bytes
again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_align_models.py
"""

import pathlib

import make_found
import numpy as np
from make_found import Graph
from onnx import helper as h

make_found.FOUND = pathlib.Path(__file__).resolve().parents[2] / "golden/align"
SEED = 20261123
CHANNELS = 6


def transposed_norm(name, bits=8, group=1, read_twice=False, along_width=False, bias=False):
    g, rng = Graph(bits), np.random.default_rng(SEED)
    x = g.input("x", (1, CHANNELS, 6, 6), 1 / 64, 128)
    inputs = [x, g.weight("w", rng.normal(0, 0.25, (CHANNELS, CHANNELS // group, 2, 2)).astype(np.float32))]
    if bias:
        inputs.append(g.weight("b", rng.normal(0, 0.5, CHANNELS).astype(np.float32)))
    g.nodes.append(h.make_node("ConvTranspose", inputs, ["t"], name="transposed", strides=[2, 2], group=group))
    t = g.quantised("t", 1 / 32, 125)
    shift = rng.normal(0, 0.5, CHANNELS * 2 if along_width else CHANNELS).astype(np.float32)
    shift = g.weight("shift", shift if along_width else shift.reshape(1, CHANNELS, 1, 1))
    g.nodes.append(h.make_node("Add", [shift, t], ["s"], name="sum"))
    s = g.quantised("s", 1 / 32, 120)
    norm = [g.weight("factor", rng.uniform(0.4, 1.6, CHANNELS).astype(np.float32)),
            g.weight("added", rng.normal(0, 0.5, CHANNELS).astype(np.float32)),
            g.constant("mean", rng.normal(0, 0.3, CHANNELS).astype(np.float32)),
            g.constant("variance", rng.uniform(0.5, 2, CHANNELS).astype(np.float32))]  # fmt: skip
    g.nodes.append(h.make_node("BatchNormalization", [s, *norm], ["n"], name="norm", epsilon=0.001))
    g.nodes.append(h.make_node("Relu", ["n"], ["y_made"], name="relu"))
    shape = (1, CHANNELS, 12, 12)
    g.output("y", shape, 1 / 48, 0)
    if read_twice:
        g.nodes.append(h.make_node("Neg", [s], ["z_made"], name="other"))
        g.output("z", shape, 1 / 32, 135)
    g.write(name)


if __name__ == "__main__":
    make_found.FOUND.mkdir(exist_ok=True)
    transposed_norm("norm.u8")
    transposed_norm("norm-bias.u8", bias=True)
    transposed_norm("norm-read-twice.u8", read_twice=True)
    transposed_norm("norm-groups.u8", group=2)
    transposed_norm("norm-along-width.u8", along_width=True)
