"""Random networks as quantisers emit them: 3 to 12 operators, uint8 or uint16 activations, QuantizeLinear and DequantizeLinear
around every operator (as ONNX Runtime's configuration for QNN places them) or around groups such as Conv and Relu (as AIMET does).

Scales come from a calibration with the float model's own values. Everything follows from the seed.
Needs onnx, onnxruntime and numpy (tools/oracles/make_models.requirements.txt)."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

OPSET = 21 # the first with codes of 16 bits
N_CALIBRATION = 16


class Network:
    """A float graph that grows operator by operator; `tensor` is the last tensor and `shape` its shape."""

    def __init__(self, rng):
        self.rng, self.nodes, self.constants, self.roles = rng, [], {}, {}
        self.tensor, self.count, self.shapes = "image", {}, {}
        side = int(rng.choice([6, 8, 12]))
        self.shapes["image"] = (1, int(rng.choice([3, 4, 8])), side, side)
        self.alive = ["image"]

    @property
    def shape(self):
        return self.shapes[self.tensor]

    def normal(self, *shape, spread=1.0):
        return (self.rng.standard_normal(shape) * spread).astype(np.float32)

    def constant(self, array, role):
        """role: "weight", "bias", "activation" or "plain"."""
        name = f"c{len(self.constants)}"
        self.constants[name], self.roles[name] = np.asarray(array), role
        return name

    def add(self, op, inputs, shape, outputs=1, **attributes):
        n = self.count[op] = self.count.get(op, 0) + 1
        names = [f"{op}_{n}" + (f"_{k}" if outputs > 1 else "") for k in range(outputs)]
        self.nodes.append((op, names, list(inputs), attributes))
        for name in names:
            self.shapes[name] = tuple(shape)
        self.tensor = names[0]
        self.alive.append(self.tensor)
        return names


# ---- operators: each takes a network and adds one or several; False where it does not suit ----


def conv(n, depthwise=False, transposed=False):
    if len(n.shape) != 4 or n.shape[2] < 3:
        return False
    _, c, height, width = n.shape
    rng = n.rng
    kernel = int(rng.choice([1, 3])) if not transposed else 2
    out = c if depthwise else int(rng.choice([4, 8, 12, 16]))
    stride = int(rng.choice([1, 1, 2])) if not transposed else 2
    group = c if depthwise else 1
    spread = float(rng.choice([0.5, 1, 2])) * (1.0 / (c // group * kernel * kernel)) ** 0.5
    bias = [n.constant(n.normal(out, spread=0.2), "bias")] if rng.random() < 0.8 else []
    if transposed:
        weight = n.constant(n.normal(c, out, kernel, kernel, spread=spread), "weight")
        n.add("ConvTranspose", [n.tensor, weight, *bias], (1, out, 2 * height, 2 * width), kernel_shape=[kernel] * 2,
              strides=[2, 2])  # fmt: skip
        return True
    weight = n.constant(n.normal(out, c // group, kernel, kernel, spread=spread), "weight")
    pad = kernel // 2
    size = [(d + 2 * pad - kernel) // stride + 1 for d in (height, width)]
    n.add("Conv", [n.tensor, weight, *bias], (1, out, *size), kernel_shape=[kernel] * 2, strides=[stride] * 2,
          pads=[pad] * 4, group=group)  # fmt: skip
    return True


def dense(n):
    if len(n.shape) == 4:
        n.add("Flatten", [n.tensor], (1, int(np.prod(n.shape[1:]))), axis=1)
    if n.shape[-1] > 1200:
        return False
    m = int(n.rng.choice([8, 10, 24, 32]))
    spread = n.shape[-1] ** -0.5
    bias = n.constant(n.normal(m, spread=0.2), "bias")
    if len(n.shape) == 2:
        weight = n.constant(n.normal(m, n.shape[-1], spread=spread), "weight")
        n.add("Gemm", [n.tensor, weight, bias], (1, m), transB=1)
    else:
        weight = n.constant(n.normal(n.shape[-1], m, spread=spread), "weight")
        n.add("MatMul", [n.tensor, weight], (*n.shape[:-1], m))
        n.add("Add", [n.tensor, n.constant(n.normal(m, spread=0.2), "activation")], n.shape)
    return True


def unary(op, **attributes):
    def make(n):
        n.add(op, [n.tensor], n.shape, **attributes)
        return True

    return make


def clip(n):
    top = float(n.rng.choice([1, 3, 6]))
    n.add("Clip", [n.tensor, n.constant(np.float32(0), "plain"), n.constant(np.float32(top), "plain")], n.shape)
    return True


def prelu(n):
    if len(n.shape) != 4:
        return False
    n.add("PRelu", [n.tensor, n.constant(np.abs(n.normal(n.shape[1], 1, 1, spread=0.3)), "activation")], n.shape)
    return True


def binary(op):
    def make(n):
        alike = [t for t in n.alive if n.shapes[t] == n.shape and t != n.tensor]
        if alike and n.rng.random() < 0.7:
            other = alike[n.rng.integers(len(alike))]
        else:
            shape = [(n.shape[1], 1, 1) if len(n.shape) == 4 else (n.shape[-1],), ()][int(n.rng.random() < 0.3)]
            array = n.normal(*shape, spread=0.7) if shape else np.float32(n.rng.uniform(0.2, 2))
            array = np.abs(array) + np.float32(0.3) if op == "Div" else array
            other = n.constant(np.asarray(array, np.float32), "activation")
        if op == "Div" and other in n.alive:
            return False
        n.add(op, [n.tensor, other], n.shape)
        return True

    return make


def silu(n):
    x = n.tensor
    n.add("Sigmoid", [x], n.shape)
    n.add("Mul", [x, n.tensor], n.shape)
    return True


def hard_swish(n):
    if n.rng.random() < 0.5:
        return unary("HardSwish")(n)
    x = n.tensor
    n.add("HardSigmoid", [x], n.shape, alpha=1 / 6, beta=0.5)
    n.add("Mul", [x, n.tensor], n.shape)
    return True


def concat(n):
    same = [t for t in n.alive if t != n.tensor and len(n.shapes[t]) == len(n.shape)
            and n.shapes[t][:1] + n.shapes[t][2:] == n.shape[:1] + n.shape[2:]]  # fmt: skip
    if not same or len(n.shape) < 3 or n.shape[1] > 64:
        return False
    other = same[n.rng.integers(len(same))]
    n.add("Concat", [n.tensor, other], (1, n.shape[1] + n.shapes[other][1], *n.shape[2:]), axis=1)
    return True


def resize(n):
    if len(n.shape) != 4 or n.shape[2] > 16 or n.shape[1] > 32:
        return False
    scales = n.constant(np.array([1, 1, 2, 2], np.float32), "plain")
    mode = str(n.rng.choice(["nearest", "linear"]))
    extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
    n.add("Resize", [n.tensor, "", scales], (*n.shape[:2], 2 * n.shape[2], 2 * n.shape[3]), mode=mode,
          coordinate_transformation_mode="asymmetric" if mode == "nearest" else "half_pixel", **extra)  # fmt: skip
    return True


def pool(op):
    def make(n):
        if len(n.shape) != 4 or n.shape[2] < 4:
            return False
        n.add(op, [n.tensor], (*n.shape[:2], n.shape[2] // 2, n.shape[3] // 2), kernel_shape=[2, 2], strides=[2, 2])
        return True

    return make


def global_pool(n):
    if len(n.shape) != 4:
        return False
    n.add("GlobalAveragePool", [n.tensor], (*n.shape[:2], 1, 1))
    return True


def reduce_mean(n):
    if len(n.shape) != 4 and len(n.shape) != 3:
        return False
    axes = n.constant(np.array([2, 3] if len(n.shape) == 4 else [1], np.int64), "plain")
    shape = (*n.shape[:2], 1, 1) if len(n.shape) == 4 else (1, 1, n.shape[2])
    n.add("ReduceMean", [n.tensor, axes], shape, keepdims=1)
    return True


def tokens(n):
    """[1, C, H, W] to [1, H W, C]."""
    if len(n.shape) != 4 or n.shape[2] < 2:
        return False
    _, c, height, width = n.shape
    n.add("Reshape", [n.tensor, n.constant(np.array([1, c, height * width], np.int64), "plain")], (1, c, height * width))
    n.add("Transpose", [n.tensor], (1, height * width, c), perm=[0, 2, 1])
    return True


def attention(n):
    if len(n.shape) == 4 and not tokens(n):
        return False
    if len(n.shape) != 3 or n.shape[1] > 144:
        return False
    x, (_, t, c) = n.tensor, n.shape
    made = []
    for _ in range(3):
        n.add("MatMul", [x, n.constant(n.normal(c, c, spread=c**-0.5), "weight")], (1, t, c))
        if n.rng.random() < 0.7:
            n.add("Add", [n.tensor, n.constant(n.normal(c, spread=0.2), "activation")], (1, t, c))
        made.append(n.tensor)
    n.add("Transpose", [made[1]], (1, c, t), perm=[0, 2, 1])
    n.add("MatMul", [made[0], n.tensor], (1, t, t))
    n.add("Mul", [n.tensor, n.constant(np.float32(c**-0.5), "activation")], (1, t, t))
    n.add("Softmax", [n.tensor], (1, t, t), axis=-1)
    n.add("MatMul", [n.tensor, made[2]], (1, t, c))
    return True


def layer_norm(n):
    if len(n.shape) == 4 and not tokens(n):
        return False
    c = n.shape[-1]
    if len(n.shape) != 3 or c < 4:
        return False
    scale = n.constant(1 + n.normal(c, spread=0.2), "weight")
    n.add("LayerNormalization", [n.tensor, scale, n.constant(n.normal(c, spread=0.2), "bias")], n.shape, axis=-1, epsilon=1e-5)
    return True


def instance_norm(n):
    if len(n.shape) != 4 or n.shape[2] < 4:
        return False
    scale = n.constant(1 + n.normal(n.shape[1], spread=0.2), "weight")
    n.add("InstanceNormalization", [n.tensor, scale, n.constant(n.normal(n.shape[1], spread=0.2), "bias")], n.shape, epsilon=1e-5)
    return True


def pad(n):
    if len(n.shape) != 4 or n.shape[2] > 16:
        return False
    pads = n.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "plain")
    n.add("Pad", [n.tensor, pads], (*n.shape[:2], n.shape[2] + 2, n.shape[3] + 2), mode="constant")
    return True


def split(n):
    if len(n.shape) != 4 or n.shape[1] % 2:
        return False
    shape = (1, n.shape[1] // 2, *n.shape[2:])
    a, b = n.add("Split", [n.tensor], shape, outputs=2, axis=1, num_outputs=2)
    n.add("Sub" if n.rng.random() < 0.3 else "Add", [a, b], shape)
    return True


def with_relu(make):
    def both(n):
        if not make(n):
            return False
        if n.rng.random() < 0.6:
            n.add("Relu", [n.tensor], n.shape)
        return True

    return both


OPERATORS = [
    (14, with_relu(conv)), (4, with_relu(lambda n: conv(n, depthwise=True))), (3, with_relu(lambda n: conv(n, transposed=True))),
    (5, with_relu(dense)), (2, unary("Relu")), (3, with_relu(binary("Add"))), (3, binary("Mul")), (2, binary("Sub")), (1, binary("Div")),
    (3, concat), (2, resize), (3, pool("MaxPool")), (2, pool("AveragePool")), (2, global_pool), (2, reduce_mean), (3, attention),
    (2, unary("Softmax", axis=-1)), (2, unary("Sigmoid")), (2, unary("Tanh")), (3, silu), (2, hard_swish), (2, unary("Gelu")),
    (3, layer_norm), (2, instance_norm), (1, pad), (2, split), (1, prelu), (1, unary("LeakyRelu", alpha=0.1)), (2, clip), (1, tokens),
    (1, unary("Elu")), (1, unary("HardSigmoid", alpha=0.2, beta=0.5)),
]  # fmt: skip


def draw(rng):
    n = Network(rng)
    weights = np.array([w for w, _ in OPERATORS], float)
    wanted = int(rng.integers(3, 13))
    while len(n.nodes) < wanted:
        OPERATORS[rng.choice(len(OPERATORS), p=weights / weights.sum())][1](n)
    return n


# ---- quantisation ----


def float_model(network):
    nodes = [h.make_node(op, i, o, name=o[0], **a) for op, o, i, a in network.nodes]
    constants = [numpy_helper.from_array(v, k) for k, v in network.constants.items()]
    read = {i for _, _, inputs, _ in network.nodes for i in inputs}
    outputs = [o for _, names, _, _ in network.nodes for o in names if o not in read]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", T.FLOAT, network.shapes["image"])],
                         [h.make_tensor_value_info(o, T.FLOAT, network.shapes[o]) for o in outputs], constants)  # fmt: skip
    return h.make_model(graph, opset_imports=[h.make_opsetid("", OPSET)], ir_version=9)


def calibrate(model, data):
    """{tensor: (low, high)} over the data."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    known = {o.name for o in every.graph.output}
    every.graph.output.extend([h.make_empty_tensor_value_info(o) for n in every.graph.node for o in n.output if o not in known])
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(every.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names, spans = [o.name for o in session.get_outputs()], {}
    for x in data:
        for name, value in [("image", x), *zip(names, session.run(names, {"image": x}))]:
            low, high = spans.get(name, (np.inf, -np.inf))
            spans[name] = (min(low, float(value.min())), max(high, float(value.max())))
    return spans


SAME = {"Flatten", "Reshape", "Transpose", "MaxPool", "Split"}  # output has the input's encoding, as quantisers make it


class Quantiser:
    def __init__(self, network, spans, code, groups, per_channel, symmetric):
        self.n, self.spans, self.code, self.groups, self.per_channel = network, spans, code, groups, per_channel
        del symmetric
        self.nodes, self.constants, self.read, self.encoding = [], [], {}, {}

    def put(self, name, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def dequantise(self, name, codes, scale, zero, **attributes):
        self.nodes.append(h.make_node("DequantizeLinear", [codes, self.put(f"{name}_s", np.asarray(scale, np.float32)),
                                                           self.put(f"{name}_z", zero)], [f"{name}_d"], name=f"{name}_DQ",
                                      **attributes))  # fmt: skip
        return f"{name}_d"

    def encode(self, low, high):
        top = np.iinfo(self.code).max
        low, high = min(low, 0.0), max(high, 1e-3)
        scale = np.float32((high - low) / top)
        return scale, self.code(min(max(round(-low / float(scale)), 0), top))

    def activation(self, name, encoding):
        scale, zero = self.encoding[name] = encoding
        is_output = not any(name in i for _, _, i, _ in self.n.nodes)
        made = f"{name}_float" if is_output else name # the model's output has the name of the tensor
        self.nodes.append(h.make_node("QuantizeLinear", [made, f"{name}_s", f"{name}_z"], [f"{name}_q"], name=f"{name}_Q"))
        self.read[name] = self.dequantise(name, f"{name}_q", scale, np.asarray(zero, self.code))
        if is_output:
            self.nodes[-1].output[0] = name
        return made

    def constant(self, op, name, scales):
        array, role = self.n.constants[name], self.n.roles[name]
        if name in self.read:
            return
        if role == "plain":
            self.read[name] = self.put(name, array)
        elif role == "weight":
            self.weight(op, name, array, scales)
        elif role == "bias":
            scale = np.asarray(np.float32(scales[0]) * np.asarray(scales[1], np.float32), np.float32)
            codes = np.clip(np.rint(array / scale), -(2**31) + 1, 2**31 - 1).astype(np.int32)
            axis = {"axis": 0} if scale.ndim else {}
            self.read[name] = self.dequantise(name, self.put(f"{name}_q", codes), scale, np.zeros(scale.shape, np.int32), **axis)
        else:
            scale, zero = self.encode(float(array.min()), float(array.max()))
            codes = np.clip(np.rint(array / scale) + zero, 0, np.iinfo(self.code).max).astype(self.code)
            self.read[name] = self.dequantise(name, self.put(f"{name}_q", codes), scale, np.asarray(zero, self.code))
            scales.append(scale)

    def weight(self, op, name, array, scales):
        if op in ("LayerNormalization", "InstanceNormalization"):  # asymmetric, as ONNX Runtime makes them
            low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
            scale = np.float32((high - low) / 255)
            zero = np.uint8(round(-low / float(scale)))
            codes = np.clip(np.rint(array / scale) + zero, 0, 255).astype(np.uint8)
            self.read[name] = self.dequantise(name, self.put(f"{name}_q", codes), scale, np.asarray(zero))
            scales.append(scale)
            return
        axis = 1 if op == "ConvTranspose" else 0
        is_split = self.per_channel and op in ("Conv", "ConvTranspose")
        axes = tuple(d for d in range(array.ndim) if d != axis) if is_split else None
        scale = np.maximum(np.abs(array).max(axis=axes) / 127, 1e-6).astype(np.float32)
        shape = [1] * array.ndim
        if is_split:
            shape[axis] = -1
        codes = np.clip(np.rint(array / scale.reshape(shape if is_split else [])), -127, 127).astype(np.int8)
        extra = {"axis": axis} if is_split else {}
        self.read[name] = self.dequantise(name, self.put(f"{name}_q", codes), scale, np.zeros(scale.shape, np.int8), **extra)
        scales.append(scale)

    def is_grouped(self, name):
        """Read by a single Relu or Clip that joins it."""
        users = [op for op, _, i, _ in self.n.nodes if name in i]
        made_by = next(op for op, o, _, _ in self.n.nodes if name in o)
        return self.groups and users == ["Relu"] and made_by in ("Conv", "ConvTranspose", "Gemm", "Add")

    def write(self):
        n = self.n
        self.activation("image", self.encode(*self.spans["image"]))
        for op, names, inputs, attributes in n.nodes:
            scales = []
            for i in inputs:
                if i in n.constants:
                    self.constant(op, i, scales)
                elif i in self.encoding:
                    scales.append(self.encoding[i][0])
            outputs = []
            at = len(self.nodes)
            for name in names:
                if self.is_grouped(name):
                    self.read[name] = name
                    outputs.append(name)
                    continue
                same = op in SAME and inputs[0] in self.encoding
                encoding = self.encoding[inputs[0]] if same else self.encode(*self.spans[name])
                outputs.append(self.activation(name, encoding))
            self.nodes.insert(at, h.make_node(op, [self.read.get(i, i) for i in inputs], outputs, name=names[0], **attributes))
        final = [o for _, names, _, _ in n.nodes for o in names if not any(o in i for _, _, i, _ in n.nodes)]
        outputs = [h.make_tensor_value_info(o, T.FLOAT, n.shapes[o]) for o in final]
        graph = h.make_graph(self.nodes, "g", [h.make_tensor_value_info("image", T.FLOAT, n.shapes["image"])], outputs,
                             self.constants)  # fmt: skip
        return h.make_model(graph, opset_imports=[h.make_opsetid("", OPSET)], ir_version=9)


def make(seed, folder, n_samples=6):
    """Writes float.onnx, quantised.onnx and inputs.npz of the network of that seed; returns what it is."""
    rng = np.random.default_rng([seed, 16])
    network = draw(rng)
    code = np.uint16 if rng.random() < 0.35 else np.uint8
    groups, per_channel = bool(rng.random() < 0.5), bool(rng.random() < 0.6)
    shape = network.shapes["image"]
    data = [rng.normal(size=shape).astype(np.float32) for _ in range(N_CALIBRATION)]
    model = float_model(network)
    onnx.checker.check_model(model)
    spans = calibrate(model, data)
    quantised = Quantiser(network, spans, code, groups, per_channel, False).write()
    onnx.checker.check_model(quantised)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "float.onnx")
    onnx.save(quantised, folder / "quantised.onnx")
    images = np.concatenate([rng.normal(size=shape).astype(np.float32) * np.float32(rng.uniform(0.6, 1.1)) for _ in range(n_samples)])
    np.savez(folder / "inputs.npz", image=images[:, None] if len(shape) == 3 else images)
    return {"seed": seed, "type": np.dtype(code).name, "groups": groups, "per_channel": per_channel,
            "operators": [op for op, _, _, _ in network.nodes],
            "readers": {t: [o for _, names, inputs, _ in network.nodes if t in inputs for o in names]
                        for t in network.shapes}}  # fmt: skip
