#!/usr/bin/env python3
"""Makes golden/models: small real models, trained and quantised from real data.

Two networks learn scikit-learn's handwritten digits (1797 images of 8x8 pixels, bundled with the package, so
nothing is downloaded): a CNN and a vision transformer. Each is written as float ONNX and, by ONNX Runtime's
quantiser with its configuration for Qualcomm's QNN, as W8A8 and W8A16 in QDQ form. A one-operator uint8 Mul
model goes with them, because Mul is known to differ between two SDK builds.

    python -m venv VENV && VENV/bin/pip install -r tools/oracles/make_models.requirements.txt
    VENV/bin/python tools/oracles/make_models.py [--out DIR]
    VENV/bin/python tools/oracles/make_models.py --validate

The ONNX graphs are written node by node from the trained weights, not by an exporter: so every operator and
its output tensor carry one readable name, and the float and the quantised model share these names.

Everything is seeded and runs on one thread: on one machine and with the pinned versions, two runs write the
same bytes. Another CPU may round some sums in training differently, which changes weights a little; the
files that are committed are the reference, not this script.

The 700 test images choose nothing: there is no early stopping, and the recipes below were chosen with
--validate, which trains without a quarter of the training images and measures on that quarter.
"""

import argparse
import hashlib
import logging
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

# Before NumPy and PyTorch are loaded: their thread pools read these once.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

N_TEST = 700
N_CALIBRATION = 128
N_CLASSES = 10
SPLIT_SEED = 20240901
TRAIN_SEED = 7
MUL_SEED = 51

# 21 is the first opset whose own QuantizeLinear has uint16, so W8A16 needs no vendor domain; IR 10 is what
# goes with it, and what older runtimes still read.
OPSET = 21
IR_VERSION = 10

QUANTISATIONS = {"w8a8": QuantType.QUInt8, "w8a16": QuantType.QUInt16}


# --- data ---------------------------------------------------------------------------------------------------


def load_split():
    """Returns (train, test, calibration), each a pair of images [n,1,8,8] in [0,1] and labels [n]."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None, :, :]
    labels = digits.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=N_TEST, stratify=labels, random_state=SPLIT_SEED
    )
    _, calibration_x, _, calibration_y = train_test_split(
        train_x, train_y, test_size=N_CALIBRATION, stratify=train_y, random_state=SPLIT_SEED
    )
    return (train_x, train_y), (test_x, test_y), (calibration_x, calibration_y)


def hold_out(train):
    """Splits a quarter off the training images, for --validate."""
    fit_x, val_x, fit_y, val_y = train_test_split(
        train[0], train[1], test_size=0.25, stratify=train[1], random_state=SPLIT_SEED
    )
    return (fit_x, fit_y), (val_x, val_y)


# --- networks -----------------------------------------------------------------------------------------------


class ConvBn(nn.Sequential):
    """A 'same' convolution with batch normalisation; the latter is folded away when the graph is written."""

    def __init__(self, c_in, c_out, kernel, groups=1):
        super().__init__(
            nn.Conv2d(c_in, c_out, kernel, padding=kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(c_out)
        )


class Cnn(nn.Module):
    """Stem, depthwise, pointwise, max pool, one residual convolution, global average pool, linear."""

    width = 24
    deep = 48

    def __init__(self):
        super().__init__()
        self.stem = ConvBn(1, self.width, 3)
        self.depthwise = ConvBn(self.width, self.width, 3, groups=self.width)
        self.pointwise = ConvBn(self.width, self.deep, 1)
        self.residual = ConvBn(self.deep, self.deep, 3)
        self.head = nn.Linear(self.deep, N_CLASSES)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.depthwise(x))
        x = F.max_pool2d(F.relu(self.pointwise(x)), 2)
        x = F.relu(x + self.residual(x))
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, dim, n_heads, hidden, dropout):
        super().__init__()
        self.n_heads = n_heads
        self.norm1 = nn.LayerNorm(dim)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def heads(self, x):
        n, tokens, dim = x.shape
        return x.reshape(n, tokens, self.n_heads, dim // self.n_heads).transpose(1, 2)

    def attention(self, x):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        weights = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Vit(nn.Module):
    """2x2 patches, so 16 tokens; learned positions; two blocks; the mean of the tokens is classified."""

    dim = 48
    n_heads = 3
    hidden = 96
    n_tokens = 16

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, self.dim, 2, stride=2)
        self.position = nn.Parameter(torch.randn(1, self.n_tokens, self.dim) * 0.02)
        self.blocks = nn.ModuleList(Block(self.dim, self.n_heads, self.hidden, dropout=0.1) for _ in range(2))
        self.norm = nn.LayerNorm(self.dim)
        self.head = nn.Linear(self.dim, N_CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


# --- training -----------------------------------------------------------------------------------------------

# name: network, epochs, peak learning rate, weight decay
RECIPES = {
    "cnn": (Cnn, 100, 4e-3, 0.02),
    "vit": (Vit, 300, 2e-3, 0.05),
}
BATCH = 64
EMA_DECAY = 0.995


def augment(images):
    """Random rotation, scale and shift of each image: a thousand images are few for a transformer."""
    n = len(images)
    angle = (torch.rand(n) * 2 - 1) * 0.25
    scale = 1 + (torch.rand(n) * 2 - 1) * 0.12
    shift = (torch.rand(n, 2) * 2 - 1) * 0.25  # in half images: up to one pixel
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    affine = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def train(name, data):
    """Trains one network on (images, labels) and returns its moving average, in evaluation mode."""
    network_class, epochs, peak_rate, weight_decay = RECIPES[name]
    torch.manual_seed(TRAIN_SEED)
    network = network_class()
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(EMA_DECAY), use_buffers=True
    )
    optimiser = torch.optim.AdamW(network.parameters(), lr=peak_rate, weight_decay=weight_decay)
    images, labels = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    n_batches = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, peak_rate, total_steps=epochs * n_batches, pct_start=0.1
    )
    network.train()
    for _ in range(epochs):
        for indices in torch.randperm(len(images))[: n_batches * BATCH].split(BATCH):
            loss = F.cross_entropy(network(augment(images[indices])), labels[indices], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            average.update_parameters(network)
    return average.module.eval()


def torch_accuracy(network, data):
    with torch.no_grad():
        predictions = network(torch.from_numpy(data[0])).argmax(1).numpy()
    return 100.0 * (predictions == data[1]).mean()


# --- ONNX graphs --------------------------------------------------------------------------------------------


class Graph:
    """Collects nodes and initialisers. A node and its output tensor have the same name."""

    def __init__(self, name):
        self.name = name
        self.nodes = []
        self.initializers = []

    def constant(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def op(self, op_type, name, inputs, output=None, **attributes):
        output = output or name
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output

    def matmul_bias(self, name, x, weight, bias):
        """A linear layer on tokens, as MatMul and Add: Gemm takes matrices only."""
        product = self.op("MatMul", f"{name}/matmul", [x, self.constant(f"{name}.weight", weight.T)])
        return self.op("Add", f"{name}/bias", [product, self.constant(f"{name}.bias", bias)])

    def reshape(self, name, x, shape):
        return self.op("Reshape", name, [x, self.constant(f"{name}.shape", np.array(shape, np.int64))])

    def model(self, inputs, outputs):
        """inputs and outputs: lists of (name, TensorProto type, shape)."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(*i) for i in inputs],
            [helper.make_tensor_value_info(*o) for o in outputs],
            self.initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="npudiff-make-models",
        )
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model, full_check=True)
        return model


def to_numpy(tensor):
    return tensor.detach().numpy().astype(np.float32)


def folded(conv_bn):
    """Weight and bias of a convolution with its batch normalisation folded in."""
    conv, bn = conv_bn
    gain = to_numpy(bn.weight) / np.sqrt(to_numpy(bn.running_var) + np.float32(bn.eps))
    return to_numpy(conv.weight) * gain[:, None, None, None], to_numpy(bn.bias) - to_numpy(bn.running_mean) * gain


def digits_model(graph):
    return graph.model(
        [("image", TensorProto.FLOAT, [1, 1, 8, 8])], [("logits", TensorProto.FLOAT, [1, N_CLASSES])]
    )


def write_head(graph, x, head):
    weight, bias = to_numpy(head.weight), to_numpy(head.bias)
    inputs = [x, graph.constant("head.weight", weight), graph.constant("head.bias", bias)]
    graph.op("Gemm", "head", inputs, output="logits", transB=1)


def cnn_model(network):
    graph = Graph("digits-cnn")

    def conv(name, x, layer):
        weight, bias = folded(layer)
        kernel = weight.shape[2]
        inputs = [x, graph.constant(f"{name}.weight", weight), graph.constant(f"{name}.bias", bias)]
        return graph.op(
            "Conv", f"{name}/conv", inputs, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=layer[0].groups
        )

    x = graph.op("Relu", "stem/relu", [conv("stem", "image", network.stem)])
    x = graph.op("Relu", "depthwise/relu", [conv("depthwise", x, network.depthwise)])
    x = graph.op("Relu", "pointwise/relu", [conv("pointwise", x, network.pointwise)])
    x = graph.op("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = graph.op("Add", "residual/add", [x, conv("residual", x, network.residual)])
    x = graph.op("Relu", "residual/relu", [x])
    x = graph.op("GlobalAveragePool", "average", [x])
    x = graph.op("Flatten", "features", [x], axis=1)
    write_head(graph, x, network.head)
    return digits_model(graph)


def write_norm(graph, name, x, norm):
    inputs = [
        x,
        graph.constant(f"{name}.weight", to_numpy(norm.weight)),
        graph.constant(f"{name}.bias", to_numpy(norm.bias)),
    ]
    return graph.op("LayerNormalization", name, inputs, axis=-1, epsilon=norm.eps)


def write_attention(graph, name, x, block):
    n_heads, head_dim = Vit.n_heads, Vit.dim // Vit.n_heads

    def heads(part, layer, perm, gain=1.0):
        gain = np.float32(gain)
        y = graph.matmul_bias(f"{name}/{part}", x, to_numpy(layer.weight) * gain, to_numpy(layer.bias) * gain)
        y = graph.reshape(f"{name}/{part}/heads", y, [1, Vit.n_tokens, n_heads, head_dim])
        return graph.op("Transpose", f"{name}/{part}/transpose", [y], perm=perm)

    # The division by sqrt(head_dim) goes into q's weights, so that the graph needs no scalar Mul.
    q = heads("q", block.q, [0, 2, 1, 3], gain=head_dim**-0.5)
    k = heads("k", block.k, [0, 2, 3, 1])
    v = heads("v", block.v, [0, 2, 1, 3])
    scores = graph.op("MatMul", f"{name}/scores", [q, k])
    weights = graph.op("Softmax", f"{name}/softmax", [scores], axis=-1)
    y = graph.op("MatMul", f"{name}/context", [weights, v])
    y = graph.op("Transpose", f"{name}/context/transpose", [y], perm=[0, 2, 1, 3])
    y = graph.reshape(f"{name}/context/merge", y, [1, Vit.n_tokens, Vit.dim])
    return graph.matmul_bias(f"{name}/proj", y, to_numpy(block.proj.weight), to_numpy(block.proj.bias))


def write_mlp(graph, name, x, block):
    y = graph.matmul_bias(f"{name}/fc1", x, to_numpy(block.fc1.weight), to_numpy(block.fc1.bias))
    y = graph.op("Gelu", f"{name}/gelu", [y])
    return graph.matmul_bias(f"{name}/fc2", y, to_numpy(block.fc2.weight), to_numpy(block.fc2.bias))


def vit_model(network):
    graph = Graph("digits-vit")
    patch = [
        graph.constant("patch.weight", to_numpy(network.patch.weight)),
        graph.constant("patch.bias", to_numpy(network.patch.bias)),
    ]
    x = graph.op("Conv", "patch/conv", ["image", *patch], kernel_shape=[2, 2], strides=[2, 2])
    x = graph.reshape("patch/flatten", x, [1, Vit.dim, Vit.n_tokens])
    x = graph.op("Transpose", "patch/tokens", [x], perm=[0, 2, 1])
    x = graph.op("Add", "position/add", [x, graph.constant("position", to_numpy(network.position))])
    for i, block in enumerate(network.blocks):
        name = f"block{i}"
        y = write_attention(graph, f"{name}/attn", write_norm(graph, f"{name}/norm1", x, block.norm1), block)
        x = graph.op("Add", f"{name}/attn/add", [x, y])
        y = write_mlp(graph, f"{name}/mlp", write_norm(graph, f"{name}/norm2", x, block.norm2), block)
        x = graph.op("Add", f"{name}/mlp/add", [x, y])
    x = write_norm(graph, "norm", x, network.norm)
    x = graph.op("ReduceMean", "features", [x, graph.constant("features.axes", np.array([1], np.int64))], keepdims=0)
    write_head(graph, x, network.head)
    return digits_model(graph)


# --- quantisation -------------------------------------------------------------------------------------------


class ImageReader(CalibrationDataReader):
    """Feeds the calibration images one at a time, as the quantiser asks for them."""

    def __init__(self, images):
        self.feeds = iter([{"image": image[None]} for image in images])

    def get_next(self):
        return next(self.feeds, None)


def quantise(float_path, quantised_path, activation_type, calibration_images):
    """Writes the QDQ model. qnn_preprocess_model is not needed: it would only fuse what is not there."""
    config = get_qnn_qdq_config(
        float_path,
        ImageReader(calibration_images),
        activation_type=activation_type,
        weight_type=QuantType.QUInt8,
    )
    quantize(float_path, quantised_path, config)
    onnx.checker.check_model(str(quantised_path), full_check=True)


# --- the Mul of two SDKs ------------------------------------------------------------------------------------


def asymmetric_uint8(values):
    """Scale and zero point of the range of values, which must include 0."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = np.float32((high - low) / 255.0)
    return scale, np.uint8(round(-low / float(scale)))


def mul_models():
    """Returns (float model, uint8 model, probe) of one Mul of two activations.

    The uint8 model takes and gives codes, so that a quantisation of inputs done elsewhere cannot hide in it.
    """
    rng = np.random.default_rng(MUL_SEED)
    a, b = rng.normal(0.1, 0.8, 8192), rng.normal(-0.1, 0.7, 8192)
    encodings = {"a": asymmetric_uint8(a), "b": asymmetric_uint8(b), "product": asymmetric_uint8(a * b)}
    shape = [1, 256]

    float_graph = Graph("mul-float")
    float_graph.op("Mul", "mul", ["a", "b"], output="product")
    float_model = float_graph.model(
        [("a", TensorProto.FLOAT, shape), ("b", TensorProto.FLOAT, shape)], [("product", TensorProto.FLOAT, shape)]
    )

    # Names as ONNX Runtime's quantiser gives them.
    graph = Graph("mul-u8")
    for name, (scale, zero_point) in encodings.items():
        graph.constant(f"{name}_scale", np.array(scale))
        graph.constant(f"{name}_zero_point", np.array(zero_point))

    def qdq(op_type, tensor, x, output):
        inputs = [x, f"{tensor}_scale", f"{tensor}_zero_point"]
        return graph.op(op_type, f"{tensor}_{op_type}", inputs, output=output)

    factors = [qdq("DequantizeLinear", name, name, f"{name}_DequantizeLinear_Output") for name in ("a", "b")]
    product = graph.op("Mul", "mul", factors, output="product_QuantizeLinear_Input")
    qdq("QuantizeLinear", "product", product, "product")
    u8_model = graph.model(
        [("a", TensorProto.UINT8, shape), ("b", TensorProto.UINT8, shape)], [("product", TensorProto.UINT8, shape)]
    )

    probe = {name: rng.integers(0, 256, (32, *shape), dtype=np.uint8) for name in ("a", "b")}
    return float_model, u8_model, probe


def make_mul(out):
    float_model, u8_model, probe = mul_models()
    onnx.save(float_model, out / "mul.float.onnx")
    onnx.save(u8_model, out / "mul.u8.onnx")
    np.savez_compressed(out / "mul-probe.npz", **probe)
    check_mul(u8_model, cpu_session(out / "mul.float.onnx"), cpu_session(out / "mul.u8.onnx"), probe)


# --- checks and report --------------------------------------------------------------------------------------


def cpu_session(path):
    """The CPU provider without optimisations: with them it fuses QDQ groups into other arithmetic."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def cpu_logits(path, images):
    session = cpu_session(path)
    return np.concatenate([session.run(["logits"], {"image": image[None]})[0] for image in images])


def operator_counts(path):
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def check_against_torch(network, path, images):
    """The graph was written by hand, so hold it against the network that it stands for."""
    with torch.no_grad():
        expected = network(torch.from_numpy(images)).numpy()
    worst = np.abs(cpu_logits(path, images) - expected).max()
    if worst > 1e-4:
        raise SystemExit(f"'{path.name}' differs from the trained network by {worst}")


def check_mul(u8_model, float_session, u8_session, probe):
    """The uint8 product must be the float product, rounded to a code."""
    constants = {i.name: numpy_helper.to_array(i) for i in u8_model.graph.initializer}

    def real(name, codes):
        return (codes.astype(np.float32) - constants[f"{name}_zero_point"]) * constants[f"{name}_scale"]

    for a, b in zip(probe["a"], probe["b"]):
        [codes] = u8_session.run(["product"], {"a": a, "b": b})
        [exact] = float_session.run(["product"], {"a": real("a", a), "b": real("b", b)})
        lowest, highest = real("product", np.uint8(0)), real("product", np.uint8(255))
        error = np.abs(real("product", codes) - np.clip(exact, lowest, highest))
        if error.max() > 0.501 * constants["product_scale"]:
            raise SystemExit("the uint8 Mul is not its float counterpart")


def print_model(path, test):
    """One row of the accuracy table."""
    correct = int((cpu_logits(path, test[0]).argmax(1) == test[1]).sum())
    counts = operator_counts(path)
    print(
        f"{path.name:16} {100.0 * correct / len(test[1]):6.2f} % ({correct}/{len(test[1])})"
        f"  {counts['QuantizeLinear']:3} Q {counts['DequantizeLinear']:3} DQ"
    )


def print_files(out):
    total = 0
    for path in sorted(p for p in out.iterdir() if p.suffix in (".onnx", ".npz")):
        data = path.read_bytes()
        total += len(data)
        print(f"{hashlib.sha256(data).hexdigest()}  {len(data):8}  {path.name}")
    print(f"{total} bytes in all")


# --- main ---------------------------------------------------------------------------------------------------


def make_digits(name, build, train_data, calibration, out):
    """Trains one network and writes its float and quantised models."""
    start = time.monotonic()
    network = train(name, train_data)
    print(f"{name}: trained in {time.monotonic() - start:.0f} s")
    float_path = out / f"{name}.float.onnx"
    onnx.save(build(network), float_path)
    check_against_torch(network, float_path, calibration[0])
    for suffix, activation_type in QUANTISATIONS.items():
        quantise(float_path, out / f"{name}.{suffix}.onnx", activation_type, calibration[0])


def validate():
    fit, held_out = hold_out(load_split()[0])
    for name in RECIPES:
        start = time.monotonic()
        accuracy = torch_accuracy(train(name, fit), held_out)
        print(f"{name}: {accuracy:.2f} % of {len(held_out[1])} held out, {time.monotonic() - start:.0f} s")


def make_all(out):
    out.mkdir(parents=True, exist_ok=True)
    train_data, test, calibration = load_split()
    np.savez_compressed(out / "digits-test.npz", image=test[0], labels=test[1])
    np.savez_compressed(out / "digits-calibration.npz", image=calibration[0], labels=calibration[1])
    for name, build in (("cnn", cnn_model), ("vit", vit_model)):
        make_digits(name, build, train_data, calibration, out)
    make_mul(out)

    print("\naccuracy on the test images, ONNX Runtime CPU, graph optimisation disabled:")
    for name in RECIPES:
        for suffix in ("float", *QUANTISATIONS):
            print_model(out / f"{name}.{suffix}.onnx", test)
    print()
    print_files(out)


def main():
    parser = argparse.ArgumentParser(description="Train, write and quantise the golden models.")
    parser.add_argument("--out", type=Path, default=Path("golden/models"), help="folder to write (%(default)s)")
    parser.add_argument("--validate", action="store_true", help="only measure the recipes on held-out training images")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    logging.getLogger().setLevel(logging.ERROR)  # the quantiser advises pre-processing, which is not needed here
    if arguments.validate:
        validate()
    else:
        make_all(arguments.out)


if __name__ == "__main__":
    main()
