"""Small models as quantisers write them, made at random: layouts that change at inputs and outputs, several outputs, outputs that are
read inside, too, outputs that are floats or quantised values themselves. What matters is how a model ends, so its body is short."""
import numpy as np

import onnx_write as ow
from mobile_blocks import Block

STARTS = ("plain", "nhwc", "nhwc-unquantised", "codes", "reshape", "two-inputs")
BODIES = ("conv", "conv", "relu", "sigmoid", "mul", "maxpool", "softmax", "matmul", "add-self", "hardswish", "average", "resize", "slice")
ENDS = ("plain", "transpose", "transpose-float", "transpose-twice", "transpose-relu", "transpose-inner", "reshape", "reshape-float", "squeeze",
        "identity", "identity-float", "split", "split-transposed", "concat", "concat-transposed", "inner", "branches", "float", "codes",
        "codes-transposed", "unquantised-transpose", "reducemean", "flatten-gemm", "gather", "pad")


class Ended(Block):
    """outputs: of value_info."""

    def __init__(self, seed, start, bodies, end, dtype):
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.nodes, self.constants, self.inputs, self.outputs, self.values = [], {}, [], [], {}
        self.name = f"{start}+{'+'.join(bodies)}+{end}-{np.dtype(dtype).name}"
        getattr(self, "start_" + start.replace("-", "_"))()
        for body in bodies:
            getattr(self, "body_" + body.replace("-", "_"))()
        getattr(self, "end_" + end.replace("-", "_"))()

    # ---- parts ----

    def feed(self, name, shape, quantise=True):
        self.values[name] = self.rng.normal(0, 1, shape).clip(-3, 3)
        self.inputs.append(ow.value_info(name, ow.FLOAT, shape))
        self.last = self.quantise(name) if quantise else name
        return self.last

    def value(self, tensor):
        return self.values[tensor.removesuffix(".dq")]

    def make(self, op, inputs, y, like=None, quantise=True, **attributes):
        """One operator. like: the tensor whose encoding its output has, as of operators that only move values."""
        name = f"n{len(self.nodes)}"
        self.nodes.append(ow.node(op, inputs, [name], **attributes))
        self.values[name] = y
        self.last = self.encode(name, like) if quantise else name
        return self.last

    def encode(self, name, like=None):
        source = (like or "").removesuffix(".dq")
        if source + ".s" not in self.constants:
            return self.quantise(name)
        self.constants.update({name + ".s": self.constants[source + ".s"], name + ".z": self.constants[source + ".z"]})
        self.nodes += [ow.node("QuantizeLinear", [name, name + ".s", name + ".z"], [name + ".q"]),
                       ow.node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name + ".dq"])]
        return name + ".dq"

    def integers(self, values):
        name = f"i{len(self.constants)}"
        self.constants[name] = np.array(values, np.int64)
        return name

    def weights(self, shape, fan):
        name = f"w{len(self.constants)}"
        w = self.rng.normal(0, 1 / np.sqrt(fan), shape)
        scale = np.float32(np.abs(w).max() / 127)
        codes = np.rint(w / scale).clip(-127, 127).astype(np.int8)
        self.constants.update({name + ".q": codes, name + ".s": scale, name + ".z": np.int8(0)})
        self.nodes.append(ow.node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name]))
        return name, codes * float(scale)

    def turn(self, perm=None, like=True, **more):
        x = self.value(self.last)
        perm = list(perm if perm is not None else [0] + list(1 + self.rng.permutation(x.ndim - 1)))
        return self.make("Transpose", [self.last], x.transpose(perm), like=self.last if like else None, perm=[int(p) for p in perm], **more)

    def show(self, tensor, kind=ow.FLOAT):
        self.outputs.append(ow.value_info(tensor, kind, self.value(tensor.removesuffix(".q")).shape))

    def reshape(self, shape, **more):
        y = self.value(self.last).reshape(shape)
        return self.make("Reshape", [self.last, self.integers(y.shape)], y, like=self.last, **more)

    # ---- starts ----

    def start_plain(self):
        self.feed("image", (1, 4, 6, 8))

    def start_nhwc(self):
        self.feed("image", (1, 6, 8, 4))
        self.turn([0, 3, 1, 2])

    def start_nhwc_unquantised(self):
        self.feed("image", (1, 6, 8, 4), quantise=False)
        self.turn([0, 3, 1, 2], like=False)

    def start_codes(self):
        self.values["image"] = self.rng.normal(0, 1, (1, 4, 6, 8)).clip(-3, 3)
        self.inputs.append(ow.value_info("image.q", ow.onnx_type(self.dtype), (1, 4, 6, 8)))
        self.last = self.quantise("image")
        del self.nodes[0] # the QuantizeLinear is the application's

    def start_reshape(self):
        self.feed("image", (1, 4, 48))
        self.reshape((1, 4, 6, 8))

    def start_two_inputs(self):
        a, b = self.feed("image", (1, 4, 6, 8)), self.feed("other", (1, 4, 6, 8))
        self.make("Add", [a, b], self.value(a) + self.value(b))

    # ---- bodies: of [1, channels, height, width] ----

    def body_conv(self, quantise=True):
        x = self.value(self.last)
        name, w = self.weights((5, x.shape[1], 1, 1), x.shape[1])
        self.make("Conv", [self.last, name], np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]), quantise=quantise, kernel_shape=[1, 1])

    def body_relu(self):
        self.make("Relu", [self.last], np.maximum(self.value(self.last), 0))

    def body_sigmoid(self):
        self.make("Sigmoid", [self.last], 1 / (1 + np.exp(-self.value(self.last))))

    def body_mul(self):
        self.make("Mul", [self.last, self.scalar(0.7)], self.value(self.last) * 0.7)

    def body_maxpool(self):
        x = self.value(self.last)
        y = np.max([x[:, :, i::2, j::2] for i in range(2) for j in range(2)], axis=0) if x.shape[2] % 2 == x.shape[3] % 2 == 0 else None
        if y is not None and y.size:
            self.make("MaxPool", [self.last], y, like=self.last, kernel_shape=[2, 2], strides=[2, 2])

    def body_softmax(self):
        e = np.exp(self.value(self.last))
        self.make("Softmax", [self.last], e / e.sum(-1, keepdims=True), axis=-1)

    def body_matmul(self):
        x = self.value(self.last)
        name, w = self.weights((x.shape[-1], 6), x.shape[-1])
        self.make("MatMul", [self.last, name], x @ w)

    def body_add_self(self):
        a = self.last
        self.body_relu()
        self.make("Add", [a, self.last], self.value(a) + self.value(self.last))

    def body_hardswish(self):
        x = self.value(self.last)
        self.make("HardSwish", [self.last], x * np.clip(x / 6 + 0.5, 0, 1))

    def body_average(self):
        self.make("GlobalAveragePool", [self.last], self.value(self.last).mean((2, 3), keepdims=True))

    def body_resize(self):
        self.constants["up"] = np.array([1, 1, 2, 2], np.float32)
        y = self.value(self.last).repeat(2, 2).repeat(2, 3)
        self.make("Resize", [self.last, "", "up"], y, like=self.last, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    def body_slice(self):
        y = self.value(self.last)[:, 1:]
        self.make("Slice", [self.last, self.integers([1]), self.integers([1000]), self.integers([1])], y, like=self.last)

    # ---- ends ----

    def end_plain(self):
        self.show(self.last)

    def end_transpose(self):
        self.show(self.turn(like=self.rng.random() < 0.5))

    def end_transpose_float(self):
        self.show(self.turn(quantise=False))

    def end_transpose_twice(self):
        self.turn()
        self.show(self.turn())

    def end_transpose_relu(self):
        self.turn()
        self.body_relu()
        self.show(self.last)

    def end_transpose_inner(self):
        """The transposed tensor is an output, and is read."""
        self.show(self.turn([0, 2, 3, 1]))
        self.body_sigmoid()
        self.show(self.last)

    def end_reshape(self):
        self.show(self.reshape((1, -1)))

    def end_reshape_float(self):
        self.show(self.reshape((1, -1), quantise=False))

    def end_squeeze(self):
        x = self.value(self.last)
        self.show(self.make("Squeeze", [self.last, self.integers([0])], x[0], like=self.last))

    def end_identity(self):
        self.show(self.make("Identity", [self.last], self.value(self.last), like=self.last))

    def end_identity_float(self):
        self.show(self.make("Identity", [self.last], self.value(self.last), quantise=False))

    def split(self):
        x, names = self.value(self.last), [f"p{len(self.nodes)}", f"q{len(self.nodes)}"]
        cut, source = x.shape[1] // 2 or 1, self.last
        if x.shape[1] < 2:
            return [self.last]
        self.nodes.append(ow.node("Split", [self.last, self.integers([cut, x.shape[1] - cut])], names, axis=1))
        self.values.update({names[0]: x[:, :cut], names[1]: x[:, cut:]})
        return [self.encode(name, source) for name in names]

    def end_split(self):
        for part in self.split():
            self.show(part)

    def end_split_transposed(self):
        for self.last in self.split():
            self.show(self.turn([0, 2, 3, 1]))

    def join(self):
        a = self.last
        self.body_sigmoid()
        return self.make("Concat", [a, self.last], np.concatenate([self.value(a), self.value(self.last)], 1), axis=1)

    def end_concat(self):
        self.show(self.join())

    def end_concat_transposed(self):
        self.join()
        self.show(self.turn([0, 2, 3, 1]))

    def end_inner(self):
        self.show(self.last)
        self.body_conv()
        self.show(self.last)

    def end_branches(self):
        """Two outputs of one tensor, of which one is transposed."""
        source = self.last
        self.body_conv()
        self.show(self.turn([0, 2, 3, 1]))
        self.last = source
        self.body_sigmoid()
        self.show(self.last)

    def end_float(self):
        e = np.exp(self.value(self.last))
        self.show(self.make("Softmax", [self.last], e / e.sum(-1, keepdims=True), quantise=False, axis=-1))

    def end_codes(self):
        self.show(self.last.removesuffix(".dq") + ".q", ow.onnx_type(self.dtype))
        self.nodes.pop() # the last DequantizeLinear is the application's

    def end_codes_transposed(self):
        self.turn([0, 2, 3, 1], like=False)
        self.end_codes()

    def end_unquantised_transpose(self):
        """Conv, Transpose, then the quantisers."""
        self.body_conv(quantise=False)
        self.show(self.turn([0, 3, 1, 2]))

    def end_reducemean(self):
        self.show(self.make("ReduceMean", [self.last, self.integers([2, 3])], self.value(self.last).mean((2, 3)), keepdims=0))

    def end_flatten_gemm(self):
        x = self.value(self.last)
        self.make("Flatten", [self.last], x.reshape(1, -1), like=self.last, axis=1)
        name, w = self.weights((x.size, 3), x.size)
        self.show(self.make("Gemm", [self.last, name], x.reshape(1, -1) @ w))

    def end_gather(self):
        self.show(self.make("Gather", [self.last, self.integers([0, 0])], self.value(self.last)[:, [0, 0]], like=self.last, axis=1))

    def end_pad(self):
        y = np.pad(self.value(self.last), ((0, 0), (0, 0), (1, 1), (1, 1)))
        self.show(self.make("Pad", [self.last, self.integers([0, 0, 1, 1, 0, 0, 1, 1])], y, like=self.last))

    def bytes(self):
        return ow.model(self.nodes, self.inputs, self.outputs, self.constants, opset=21)


def choose(seed, n):
    """n models; every end comes up before one comes up again."""
    rng = np.random.default_rng(seed)
    ends = []
    for number in range(n):
        ends = ends or list(rng.permutation(ENDS))
        bodies = [str(b) for b in rng.choice(BODIES, rng.integers(1, 4))]
        yield Ended(seed * 1000 + number, str(rng.choice(STARTS)), bodies, str(ends.pop()), rng.choice([np.uint8, np.uint16]))
