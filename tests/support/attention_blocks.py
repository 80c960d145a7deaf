"""Attention as quantisers write it, without layers that have weights: blocks whose first MatMul leaves the NPU when the transposed
keys are recorded in a session of the whole model (seen with QAIRT 2.51.0), and an image that is made ready in the graph."""
import numpy as np

import onnx_write as ow
from mobile_blocks import Block


class Attention(Block):
    """x + softmax(q k) v in each block, of one head."""

    def __init__(self, seed, blocks, tokens=6, width=8):
        self.rng, self.dtype = np.random.default_rng(seed), np.uint8
        self.nodes, self.constants = [], {}
        self.values = {"image": self.rng.normal(0, 1, (1, tokens, width)).clip(-3, 3)}
        self.last = self.quantise("image")
        for number in range(blocks):
            self.block(number, width)

    def step(self, op, name, inputs, y, **attributes):
        """One operator; its output is called `name`. Returns the name of its quantised values as floats."""
        self.nodes.append(ow.node(op, inputs, [name], **attributes))
        self.values[name], self.shown = y, name
        self.last = self.quantise(name)
        return self.last

    def block(self, number, width):
        at, source, x = f"b{number}/", self.last, self.values[self.last.removesuffix(".dq")]
        tokens = x.shape[1]
        self.constants.update({at + "heads": np.array([1, tokens, 2, width // 2], np.int64), at + "flat": np.array([1, tokens, width], np.int64)})
        heads = x.reshape(1, tokens, 2, width // 2)
        split = self.step("Reshape", at + "split", [source, at + "heads"], heads)
        q = self.step("Transpose", at + "q", [split], heads.transpose(0, 2, 1, 3), perm=[0, 2, 1, 3])
        k = self.step("Transpose", at + "k", [split], heads.transpose(0, 2, 3, 1), perm=[0, 2, 3, 1])
        scores = heads.transpose(0, 2, 1, 3) @ heads.transpose(0, 2, 3, 1)
        qk = self.step("MatMul", at + "scores", [q, k], scores)
        soft = np.exp(scores - scores.max(-1, keepdims=True))
        soft /= soft.sum(-1, keepdims=True)
        weights = self.step("Softmax", at + "weights", [qk], soft, axis=-1)
        mixed = soft @ heads.transpose(0, 2, 1, 3)
        out = self.step("MatMul", at + "mixed", [weights, q], mixed)
        joined = self.step("Transpose", at + "joined", [out], mixed.transpose(0, 2, 1, 3), perm=[0, 2, 1, 3])
        flat = mixed.transpose(0, 2, 1, 3).reshape(1, tokens, width)
        flat_dq = self.step("Reshape", at + "flat_out", [joined, at + "flat"], flat)
        self.step("Add", at + "sum", [source, flat_dq], x + flat)


class Photo(Block):
    """A uint8 image, channels last, as a camera gives it: converted, transposed and scaled in the graph, then a Conv."""

    def __init__(self, seed, side=12, channels=3):
        self.rng, self.dtype = np.random.default_rng(seed), np.uint8
        self.nodes, self.constants = [], {}
        x = self.rng.integers(0, 256, (1, side, side, channels)).astype(np.float64)
        self.nodes += [ow.node("Cast", ["image"], ["cast"], to=ow.FLOAT), ow.node("Transpose", ["cast"], ["first"], perm=[0, 3, 1, 2])]
        self.values = {"image": x, "first": x.transpose(0, 3, 1, 2)}
        self.last = self.quantise("first")
        self.add("Mul", [self.last, self.scalar(1 / 127.5)], self.values["first"] / 127.5)
        self.add("Sub", [self.last, self.scalar(1.0)], self.values["first"] / 127.5 - 1)
        self.conv(8, 3)

    def bytes(self):
        y = self.values[self.shown]
        return ow.model(self.nodes, [ow.value_info("image", ow.U8, self.values["image"].shape)], [ow.value_info(self.last, ow.FLOAT, y.shape)],
                        self.constants)
