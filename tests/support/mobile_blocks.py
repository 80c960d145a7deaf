"""Blocks of mobile networks as quantisers write them, each a small model with QuantizeLinear and DequantizeLinear around every
operator, calibrated with random inputs."""
import numpy as np

import onnx_write as ow


def convolve(x, w, stride, pad, groups):
    """x: [1, channels, height, width]; w: [out, channels / groups, kernel, kernel]."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k, per_in, per_out = w.shape[2], w.shape[1], w.shape[0] // groups
    n = (x.shape[2] - k) // stride + 1
    y = np.zeros((1, w.shape[0], n, n))
    for i in range(k):
        for j in range(k):
            part = x[0, :, i:i + stride * n:stride, j:j + stride * n:stride]
            for o in range(w.shape[0]):
                group = o // per_out
                y[0, o] += np.tensordot(w[o, :, i, j], part[group * per_in:(group + 1) * per_in], 1)
    return y


class Block:
    """A model that grows; `values` are float values of the tensor that is quantised last."""

    def __init__(self, seed, dtype=np.uint8, side=12, channels=8):
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.nodes, self.constants = [], {}
        self.values = {"image": self.rng.normal(0, 1, (1, channels, side, side)).clip(-3, 3)}
        self.last = self.quantise("image")

    def quantise(self, name):
        """Codes of a tensor and floats of them again: the name of these."""
        x, info = self.values[name], np.iinfo(self.dtype)
        low, high = min(0, float(x.min())), max(0, float(x.max()))
        scale = np.float32(max(high - low, 1e-6) / (int(info.max) - int(info.min)))
        self.constants.update({name + ".s": scale, name + ".z": self.dtype(int(round(info.min - low / float(scale))))})
        self.nodes += [ow.node("QuantizeLinear", [name, name + ".s", name + ".z"], [name + ".q"]),
                       ow.node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name + ".dq"])]
        return name + ".dq"

    def add(self, op, inputs, y, **attributes):
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(ow.node(op, inputs, [name], **attributes))
        self.values[name] = y
        self.last, self.shown = self.quantise(name), name
        return name

    def scalar(self, value):
        """A constant of one element, quantised as activations are."""
        name = f"k{len(self.constants)}"
        info = np.iinfo(self.dtype)
        self.constants.update({name + ".s": np.float32(value / int(info.max)), name + ".z": self.dtype(0), name + ".q": self.dtype(info.max)})
        self.nodes.append(ow.node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name]))
        return name

    def conv(self, out, kernel, stride=1, groups=1, is_per_channel=False):
        x = self.values[self.last.removesuffix(".dq")]
        per_in = x.shape[1] // groups
        w = self.rng.normal(0, 1 / np.sqrt(per_in * kernel * kernel), (out, per_in, kernel, kernel))
        if is_per_channel:
            w *= np.exp(self.rng.uniform(-2, 1, (out, 1, 1, 1)))
        largest = np.abs(w).max((1, 2, 3)) if is_per_channel else np.abs(w).max()
        scale = np.asarray(largest / 127, np.float32)
        zero = np.zeros(scale.shape, np.int8)
        codes = np.rint(w / scale.reshape((-1, 1, 1, 1) if is_per_channel else ())).clip(-127, 127).astype(np.int8)
        bias = self.rng.normal(0, 0.2, out)
        step = np.asarray(scale * self.constants[self.last.removesuffix(".dq") + ".s"], np.float32)
        name = f"w{len(self.nodes)}"
        self.constants.update({name + ".q": codes, name + ".s": scale, name + ".z": zero, name + ".b": np.rint(bias / step).astype(np.int32),
                               name + ".bs": step, name + ".bz": np.zeros(step.shape, np.int32)})
        axis = {"axis": 0} if is_per_channel else {}
        self.nodes += [ow.node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name], **axis),
                       ow.node("DequantizeLinear", [name + ".b", name + ".bs", name + ".bz"], [name + ".bias"], **axis)]
        y = convolve(x, w, stride, kernel // 2, groups) + bias.reshape(1, -1, 1, 1)
        pad = kernel // 2
        self.add("Conv", [self.last, name, name + ".bias"], y, strides=[stride, stride], pads=[pad] * 4, group=groups, kernel_shape=[kernel, kernel])
        return self

    def hard_swish(self):
        """x (clip(x + 3, 0, 6)) / 6, an operator at a time."""
        x, source = self.values[self.last.removesuffix(".dq")], self.last
        self.add("Add", [source, self.scalar(3.0)], x + 3)
        self.constants.update({"low": np.float32(0), "high": np.float32(6)})
        y = np.clip(x + 3, 0, 6)
        self.add("Clip", [self.last, "low", "high"], y)
        self.add("Mul", [source, self.last], x * y)
        self.add("Div", [self.last, self.scalar(6.0)], x * y / 6)
        return self

    def silu(self):
        x, source = self.values[self.last.removesuffix(".dq")], self.last
        y = 1 / (1 + np.exp(-x))
        self.add("Sigmoid", [source], y)
        self.add("Mul", [source, self.last], x * y)
        return self

    def bytes(self):
        shape = self.values["image"].shape
        return ow.model(self.nodes, [ow.value_info("image", ow.FLOAT, shape)], [ow.value_info(self.last, ow.FLOAT, self.values[self.shown].shape)],
                        self.constants)


BLOCKS = {
    "depthwise-stride-2": lambda seed: Block(seed).conv(8, 3, stride=2, groups=8),
    "depthwise-stride-2-per-channel": lambda seed: Block(seed).conv(8, 3, stride=2, groups=8, is_per_channel=True),
    "hard-swish": lambda seed: Block(seed).conv(8, 1).hard_swish(),
    "silu": lambda seed: Block(seed).conv(8, 1).silu(),
    "conv-per-channel": lambda seed: Block(seed).conv(16, 3, is_per_channel=True),
    "conv-w8a16": lambda seed: Block(seed, np.uint16).conv(16, 3),
}
