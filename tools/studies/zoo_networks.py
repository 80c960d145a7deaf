"""Networks whose packages have no ONNX file as such: weights of PyTorch, whose network is written down here, and a file in pieces."""

import collections
import io
import json
import pickle

import numpy as np

# EfficientNet-Lite0: the times a block is repeated, kernel, stride of the first, expansion, channels.
BLOCKS = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))

# ISNet is made for pictures of 1024 × 1024, on which the simulator computes for hours.
ISNET_SIDE = 128


class _Weights(pickle.Unpickler):
    """Reads a state of PyTorch in its old file format: names and tensors, and no code is run."""

    def __init__(self, file, storages):
        super().__init__(file)
        self.storages = storages

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: (storage, offset, size, stride)
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is not expected")

    def persistent_load(self, saved):
        _, kind, key, _, n = saved[:5]
        self.storages[key] = (kind, n)
        return key


def torch_state(path):
    with open(path, "rb") as file:
        storages = {}
        for _ in range(3):  # magic number, version, sizes of types
            pickle.load(file)
        tensors = _Weights(file, storages).load()
        values = {}
        for key in pickle.load(file):
            n = int.from_bytes(file.read(8), "little")
            dtype = {"FloatStorage": "<f4", "LongStorage": "<i8"}[storages[key][0]]
            values[key] = np.frombuffer(file.read(n * np.dtype(dtype).itemsize), dtype)
    return {
        name: np.lib.stride_tricks.as_strided(values[key][offset:], size, [s * values[key].itemsize for s in stride]).copy()
        for name, (key, offset, size, stride) in tensors.items()
    }


class _Network:
    def __init__(self, state):
        from onnx import helper, numpy_helper

        self.helper, self.to_tensor, self.state, self.nodes, self.constants = helper, numpy_helper.from_array, state, [], []

    def constant(self, name, array):
        self.constants.append(self.to_tensor(np.asarray(array), name))
        return name

    def add(self, op_type, inputs, name, **attributes):
        self.nodes.append(self.helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x, name, norm, stride=1, group=1, clip=True):
        weights = self.state[f"{name}.weight"]
        side = weights.shape[-1]
        # TensorFlow's "same" on an even side: with a stride of two there is less before than behind.
        first, last = (side - stride) // 2 if stride == 2 else side // 2, side // 2
        x = self.add("Conv", [x, self.constant(f"{name}.w", weights)], name, strides=[stride] * 2, pads=[first, first, last, last], group=group)
        parts = [self.constant(f"{norm}.{k}", self.state[f"{norm}.{k}"]) for k in ("weight", "bias", "running_mean", "running_var")]
        x = self.add("BatchNormalization", [x, *parts], norm, epsilon=1e-3)
        return self.add("Clip", [x, "zero", "six"], f"{norm}.relu6") if clip else x


def efficientnet_lite0(path):
    from onnx import TensorProto, helper

    state = torch_state(path)
    net = _Network(state)
    net.constant("zero", np.float32(0)), net.constant("six", np.float32(6))
    x, i, before = net.conv("image", "_conv_stem", "_bn0", stride=2), 0, 32
    for repeats, _, first_stride, expansion, channels in BLOCKS:
        for r in range(repeats):
            name, stride, kept = f"_blocks.{i}.", first_stride if r == 0 else 1, x
            if expansion > 1:
                x = net.conv(x, name + "_expand_conv", name + "_bn0")
            x = net.conv(x, name + "_depthwise_conv", name + "_bn1", stride, before * expansion)
            x = net.conv(x, name + "_project_conv", name + "_bn2", clip=False)
            if stride == 1 and before == channels:
                x = net.add("Add", [x, kept], name + "add")
            i, before = i + 1, channels
    x = net.conv(x, "_conv_head", "_bn1")
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x], "pool")], "flat")
    net.add("Gemm", [x, net.constant("w", state["_fc.weight"]), net.constant("b", state["_fc.bias"])], "classes", transB=1)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("image", (1, 3, 224, 224)), ("classes", (1, 1000)))]
    graph = helper.make_graph(net.nodes, "efficientnet-lite0", values[:1], values[1:], net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _resize_from(model, old_side, side):
    """The sides that upsampling gives are constants, written for inputs of `old_side` pixels. They become those for `side`."""
    from onnx import numpy_helper

    made_by = {name: node for node in model.graph.node for name in node.output}
    sizes = {made_by[node.input[3]].input[-1] for node in model.graph.node if node.op_type == "Resize"}
    for name in sizes:
        value = made_by[name].attribute[0].t
        value.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(value) * side // old_side))


def isnet(path):
    """The pieces of the package's middle model, joined, and for small pictures. Its values of half precision become floats, as
    before a quantisation."""
    import onnx
    from onnx import TensorProto, numpy_helper

    pieces = json.loads(path.read_text())["/models/medium"]["chunks"]
    model = onnx.load(io.BytesIO(b"".join((path.parent / piece["hash"]).read_bytes() for piece in pieces)))
    for constant in model.graph.initializer:
        if constant.data_type == TensorProto.FLOAT16:
            constant.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(constant).astype(np.float32), constant.name))
    for node in model.graph.node:
        for a in node.attribute:
            if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT16:
                a.i = TensorProto.FLOAT
            if a.HasField("t") and a.t.data_type == TensorProto.FLOAT16:
                a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype(np.float32)))
    _resize_from(model, 1024, ISNET_SIDE)
    return model
