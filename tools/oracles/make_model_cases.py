#!/usr/bin/env python3
"""Makes golden/oracle/model and golden/bad/models: the small ONNX files that tests/unit/test_model*.c read.

Pinned: onnx 1.23.2, onnxruntime 1.31.1, numpy 2.4.6 (Python 3.11). Other versions may write other bytes, which the
tests do not depend on. Every good model but one is run once in ONNX Runtime; every bad one is described in
golden/bad/models/README.md.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
    VENV/bin/python tools/oracles/make_model_cases.py
    VENV/bin/python tools/oracles/make_model_cases.py --check FILE...   # what npudiff wrote is valid and runs
"""

import argparse
import pathlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = ROOT / "golden/oracle/model"
BAD = ROOT / "golden/bad/models"

Q, DQ = "QuantizeLinear", "DequantizeLinear"


def value(name, elem_type=T.FLOAT, shape=(1, 4)):
    return h.make_tensor_value_info(name, elem_type, shape)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def node(op, inputs, outputs, name=None, **attributes):
    return h.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


class Model:
    """A whole model; the scale "s" (0.25) and the zero point "z" (128, uint8) are there where nodes read them."""

    def __init__(self, inputs, outputs, nodes, constants=(), value_info=(), opset=21, ir=10):
        self.initializers = [constant("s", np.float32(0.25)), constant("z", np.uint8(128)), *constants]
        used = {name for n in nodes for name in n.input} | {o.name for o in outputs}
        graph = h.make_graph(
            nodes,
            "case",
            inputs,
            outputs,
            [i for i in self.initializers if i.name in used or i.name not in ("s", "z")],
            value_info=value_info,
        )
        imports = [h.make_opsetid("", opset)]
        if any(n.domain == "com.microsoft" for n in nodes):
            imports.append(h.make_opsetid("com.microsoft", 1))
        self.proto = h.make_model(graph, opset_imports=imports, ir_version=ir, producer_name="make_model_cases")


def chain():
    """The usual: input Q, a unit of two operators with constant weights, an output behind DequantizeLinear. The Relu has no
    name; a node, the graph and the model hold fields that ONNX 1.12 did not have."""
    weight = constant("w_quantized", np.arange(-8, 8, dtype=np.int8).reshape(4, 4))
    m = Model(
        [value("image")],
        [value("logits")],
        [
            node(DQ, "w_quantized w_scale w_zero", "w_dq", "w_DequantizeLinear", axis=1),
            node(Q, "image s z", "image_QuantizeLinear_Output", "image_QuantizeLinear"),
            node(DQ, "image_QuantizeLinear_Output s z", "image_DequantizeLinear_Output", "image_DequantizeLinear"),
            node("MatMul", "image_DequantizeLinear_Output w_dq", "hidden/matmul", "hidden/matmul"),
            node("Relu", "hidden/matmul", "hidden"),
            node(Q, "hidden s z", "hidden_QuantizeLinear_Output", "hidden_QuantizeLinear"),
            node(DQ, "hidden_QuantizeLinear_Output s z", "hidden_DequantizeLinear_Output", "hidden_DequantizeLinear"),
            node("Add", "hidden_DequantizeLinear_Output image_DequantizeLinear_Output",
                 "logits_QuantizeLinear_Input", "head"),
            node(Q, "logits_QuantizeLinear_Input out_scale out_zero", "logits_QuantizeLinear_Output", "logits_Q"),
            node(DQ, "logits_QuantizeLinear_Output out_scale out_zero", "logits", "logits_DQ"),
        ],
        [
            weight,
            constant("w_scale", np.array([0.5, 0.25, 0.125, 1], np.float32)),
            constant("w_zero", np.zeros(4, np.int8)),
            constant("out_scale", np.float32(0.1)),
            constant("out_zero", np.uint16(32768)),
        ],
        [value("hidden"), value("hidden_QuantizeLinear_Output", T.UINT8), value("logits_QuantizeLinear_Input")],
    ).proto
    m.metadata_props.add(key="author", value="make_model_cases")
    m.graph.metadata_props.add(key="graph", value="new in ONNX 1.16")
    m.graph.node[3].metadata_props.add(key="node", value="new in ONNX 1.16")
    return m


def codes_io():
    """Codes in and codes out; one input goes nowhere."""
    return Model(
        [value("a", T.UINT8), value("b", T.INT8), value("unused")],
        [value("product", T.UINT8)],
        [
            node(DQ, "a s z", "a_dq", "a_DQ"),
            node(DQ, "b s", "b_dq", "b_DQ"),
            node("Mul", "a_dq b_dq", "product_QuantizeLinear_Input", "mul"),
            node(Q, "product_QuantizeLinear_Input s z", "product", "product_Q"),
        ],
    ).proto


def requant():
    """Two conversions from uint8 to uint16: one inside, one whose result is the graph's output."""
    return Model(
        [value("x")],
        [value("logits")],
        [
            node(Q, "x s z", "x_QuantizeLinear_Output", "x_Q"),
            node(DQ, "x_QuantizeLinear_Output s z", "x_DequantizeLinear_Output", "x_DQ"),
            node(Q, "x_DequantizeLinear_Output s16 z16", "x_convert_QuantizeLinear_Output", "x_convert_Q"),
            node(DQ, "x_convert_QuantizeLinear_Output s16 z16", "x_convert_DequantizeLinear_Output", "x_convert_DQ"),
            node("Relu", "x_convert_DequantizeLinear_Output", "logits_QuantizeLinear_Input", "relu"),
            node(Q, "logits_QuantizeLinear_Input s16 z16", "logits_QuantizeLinear_Output", "logits_Q"),
            node(DQ, "logits_QuantizeLinear_Output s16 z16", "logits_DequantizeLinear_Output", "logits_DQ"),
            node(Q, "logits_DequantizeLinear_Output s z", "logits_convert_QuantizeLinear_Output", "logits_convert_Q"),
            node(DQ, "logits_convert_QuantizeLinear_Output s z", "logits", "logits_convert_DQ"),
        ],
        [constant("s16", np.float32(1 / 256)), constant("z16", np.uint16(7))],
    ).proto


def split():
    """An operator with two quantised outputs, and an operator before it that belongs to neither unit."""
    return Model(
        [value("x")],
        [value("y", shape=(1, 2))],
        [
            node(Q, "x s z", "x_q", "x_Q"),
            node(DQ, "x_q s z", "x_dq", "x_DQ"),
            node("Relu", "x_dq", "relu", "relu"),
            node("Split", "relu", "left right", "split", axis=1, num_outputs=2),
            node(Q, "left s z", "left_q", "left_Q"),
            node(Q, "right s z", "right_q", "right_Q"),
            node(DQ, "left_q s z", "left_dq", "left_DQ"),
            node(DQ, "right_q s z", "right_dq", "right_DQ"),
            node("Add", "left_dq right_dq", "y", "add"),
        ],
    ).proto


def twins():
    """A tensor quantised once for each reader; once more with another scale, and once more for an output."""
    return Model(
        [value("x")],
        [value("y"), value("codes", T.UINT8)],
        [
            node(Q, "x s z", "x_q", "x_Q"),
            node(DQ, "x_q s z", "x_dq", "x_DQ"),
            node("Relu", "x_dq", "relu", "relu"),
            node(Q, "relu s z", "relu_QuantizeLinear_Output_1", "relu_Q1"),
            node(Q, "relu s z", "relu_QuantizeLinear_Output_2", "relu_Q2"),
            node(Q, "relu s8 z", "relu_QuantizeLinear_Output_3", "relu_Q3"),
            node(Q, "relu s z", "codes", "relu_Q4"),
            node(DQ, "relu_QuantizeLinear_Output_1 s z", "relu_dq1", "relu_DQ1"),
            node(DQ, "relu_QuantizeLinear_Output_2 s z", "relu_dq2", "relu_DQ2"),
            node(DQ, "relu_QuantizeLinear_Output_3 s8 z", "relu_dq3", "relu_DQ3"),
            node("Sigmoid", "relu_dq1", "gate", "gate"),
            node(Q, "gate s z", "gate_q", "gate_Q"),
            node(DQ, "gate_q s z", "gate_dq", "gate_DQ"),
            node("Mul", "relu_dq2 gate_dq", "mul", "mul"),
            node(Q, "mul s z", "mul_q", "mul_Q"),
            node(DQ, "mul_q s z", "mul_dq", "mul_DQ"),
            node("Add", "mul_dq relu_dq3", "y", "add"),
        ],
        [constant("s8", np.float32(1 / 8))],
    ).proto


def mixed():
    """Floats before the first QuantizeLinear, a tensor that is quantised twice and also read as floats, floats at the end;
    a constant that a QuantizeLinear makes from floats; an output that is the input."""
    return Model(
        [value("x")],
        [value("sum"), value("x"), value("twice")],
        [
            node(Q, "bias s z", "bias_q", "bias_Q"),
            node(DQ, "bias_q s z", "bias_dq", "bias_DQ"),
            node("Relu", "x", "front", "front"),
            node("Neg", "front", "twice", "neg"),
            node(Q, "twice s z", "twice_QuantizeLinear_Output", "twice_Q8"),
            node(Q, "twice s z16", "twice_16_QuantizeLinear_Output", "twice_Q16"),
            node(DQ, "twice_QuantizeLinear_Output s z", "twice_dq8", "twice_DQ8"),
            node(DQ, "twice_16_QuantizeLinear_Output s z16", "twice_dq16", "twice_DQ16"),
            node("Add", "twice_dq8 bias_dq", "biased", "add"),
            node("Sigmoid", "twice", "free", "free"),
            node("Sum", "biased twice_dq16 free", "sum", "sum"),
        ],
        [constant("z16", np.uint16(9)), constant("bias", np.ones((1, 4), np.float32))],
    ).proto


def front():
    """Floats in front of the first QuantizeLinear, which no unit swallows; codes that an operator moves about; a scale
    that is computed at run time; two edges that want one name."""
    return Model(
        [value("x")],
        [value("y")],
        [
            node("Relu", "x", "front", "relu"),
            node("Neg", "front", "inner", "neg"),
            node(Q, "inner s z", "inner_q", "inner_Q"),
            node("Transpose", "inner_q", "moved", "transpose", perm=[1, 0]),
            node(DQ, "moved s z", "moved_dq", "moved_DQ"),
            node("Abs", "moved_dq", "abs", "abs"),
            node("Exp", "abs", "same_QuantizeLinear_Input", "exp"),
            node(Q, "same_QuantizeLinear_Input s z", "exp_q", "exp_Q"),
            node(DQ, "exp_q s z", "exp_dq", "exp_DQ"),
            node("ReduceMax", "exp_dq", "top", "max", keepdims=0),
            node("Sqrt", "exp_dq", "same", "sqrt"),
            node(Q, "same top z", "same_q", "same_Q"),
            node(DQ, "same_q top z", "same_dq", "same_DQ"),
            node("Relu", "same_dq", "y_float", "last"),
            node("Transpose", "y_float", "y", "back", perm=[1, 0]),
        ],
    ).proto


def both():
    """Outputs inside a unit, of codes, and of what is dequantised from these codes."""
    return Model(
        [value("x")],
        [value("abs"), value("exp_q", T.UINT8), value("real")],
        [
            node(Q, "x s z", "x_q", "x_Q"),
            node(DQ, "x_q s z", "x_dq", "x_DQ"),
            node("Abs", "x_dq", "abs", "abs"),
            node("Exp", "abs", "exp", "exp"),
            node(Q, "exp s z", "exp_q", "exp_Q"),
            node(DQ, "exp_q s z", "real", "exp_DQ"),
        ],
    ).proto


def brain():
    """A bfloat16 scale, which no provider runs yet."""
    return Model(
        [value("x", T.BFLOAT16)],
        [value("y", T.UINT8)],
        [node(Q, "x sb z", "y", "y_Q")],
        [h.make_tensor("sb", T.BFLOAT16, [], [0.375])],
    ).proto


def plain():
    """No quantisation at all: a Dropout whose mask nobody reads, a dead node, constants that are computed."""
    return Model(
        [value("x")],
        [value("y")],
        [
            node("Identity", "c", "c2"),
            node("Neg", "c2", "c3", "constant"),
            node("Add", "x c3", "sum", "add"),
            node("Dropout", "sum", "kept mask", "dropout"),
            node("Abs", "sum", "dead", "dead"),
            node("Shape", "kept", "shape", "shape"),
            node("Reshape", "kept shape", "y"),
        ],
        [constant("c", np.ones((1, 4), np.float32))],
        [value("sum"), value("shape", T.INT64, (2,))],
    ).proto


def scales():
    """Every way to write a scale and a zero point, one edge each."""
    half_raw = constant("half_raw", np.float16(0.5))
    half_ints = T(data_type=T.FLOAT16, name="half_ints", int32_data=[0x3400])
    listed = T(data_type=T.FLOAT, name="listed", float_data=[0.75])
    zero_listed = T(data_type=T.INT8, name="zero_listed", int32_data=[-5])
    chain_of = []
    before = "x_dq"

    def pair(name, q_inputs, dq_inputs=None, domain="", cast=False, **attributes):
        nonlocal before
        dq_attributes = {k: v for k, v in attributes.items() if k != "output_dtype"}
        source = before
        if cast:
            chain_of.append(node("Cast", source, f"{name}_half", f"{name}_cast", to=T.FLOAT16))
            source = f"{name}_half"
        chain_of.append(node("Relu", source, name, f"{name}_relu"))
        chain_of.append(h.make_node(Q, [name, *q_inputs.split()], [f"{name}_q"], f"{name}_Q", domain=domain, **attributes))
        chain_of.append(h.make_node(DQ, [f"{name}_q", *(dq_inputs or q_inputs).split()], [f"{name}_dq"], f"{name}_DQ",
                                    domain=domain, **dq_attributes))
        before = f"{name}_dq"
        if cast:
            chain_of.append(node("Cast", before, f"{name}_float", f"{name}_uncast", to=T.FLOAT))
            before = f"{name}_float"

    pair("raw16", "half_raw z", cast=True)
    pair("ints16", "half_ints z", cast=True)
    pair("listed", "listed_scale zero_listed")
    pair("node", "node_scale z")
    pair("absent", "s")
    pair("typed", "s", output_dtype=T.INT8)
    pair("ms", "s z16", domain="com.microsoft")
    pair("channel", "s4 z4", axis=1)
    pair("back", "s4 z4", axis=-1)
    pair("single", "s1 z1")
    pair("double", "computed z")
    listed.name = "listed_scale"
    return Model(
        [value("x")],
        [value("y")],
        [
            node(Q, "x s z", "x_q", "x_Q"),
            node(DQ, "x_q s z", "x_dq", "x_DQ"),
            node("Constant", "", "node_scale", "scale", value=constant("", np.float32(0.125))),
            node("Constant", "", "float_scale", "float_scale", value_float=0.0625),
            node("Identity", "float_scale", "computed", "identity"),
            *chain_of,
            node("Relu", before, "y", "last"),
        ],
        [
            half_raw, half_ints, listed, zero_listed,
            constant("z16", np.uint16(1000)),
            constant("s4", np.array([1, 2, 3, 4], np.float32)),
            constant("z4", np.array([10, 20, 30, 40], np.uint8)),
            constant("s1", np.array([0.5], np.float32)),
            constant("z1", np.array([3], np.uint8)),
        ],
        [value("back"), value("channel_q", T.UINT8)],
    ).proto


def subgraph():
    """An If whose branches read a tensor and an initializer of the graph around them."""
    then_branch = h.make_graph([h.make_node("Add", ["hidden", "around"], ["then_y"], "then")], "then", [],
                               [value("then_y")])
    else_branch = h.make_graph([h.make_node("Neg", ["hidden"], ["else_y"], "else")], "else", [], [value("else_y")])
    return Model(
        [value("x"), value("flag", T.BOOL, ())],
        [value("y"), value("z_out")],
        [
            node("Relu", "x", "hidden", "relu"),
            node("If", "flag", "y", "if", then_branch=then_branch, else_branch=else_branch),
            node("Abs", "x", "z_out", "abs"),
        ],
        [constant("around", np.ones((1, 4), np.float32))],
    ).proto


def dynamic():
    """Named and unnamed dynamic dimensions."""
    return Model(
        [value("a", shape=("batch", None, 4)), value("b", shape=("batch", 1, 4)), value("c", shape=(1, "width"))],
        [value("y", shape=("batch", None, 4)), value("c_out", shape=(1, "width"))],
        [node("Add", "a b", "sum", "add"), node("Relu", "sum", "y", "relu"), node("Relu", "c", "c_out", "relu2")],
        value_info=[value("sum", shape=("batch", None, 4))],
    ).proto


def old_ir():
    """IR version 3: initializers are listed as inputs as well."""
    m = Model(
        [value("x"), value("unused_w"), value("w")],
        [value("y"), value("v")],
        [node("Add", "x w", "y", "add"), node("Mul", "x unused_w", "v", "mul")],
        [constant("w", np.ones((1, 4), np.float32)), constant("unused_w", np.ones((1, 4), np.float32))],
        opset=8,
        ir=3,
    ).proto
    return m


def external(location, size=16, offset=0):
    m = Model(
        [value("x")],
        [value("y")],
        [
            node("Add", "x w", "sum", "add"),
            node("Mul", "sum v", "y_QuantizeLinear_Input", "mul"),
            node(Q, "y_QuantizeLinear_Input xs z", "y_q", "y_Q"),
            node(DQ, "y_q xs z", "y", "y_DQ"),
        ],
        [
            T(name="w", data_type=T.FLOAT, dims=[1, 4], data_location=T.EXTERNAL),
            T(name="v", data_type=T.FLOAT, dims=[1, 4], data_location=T.EXTERNAL),
            T(name="xs", data_type=T.FLOAT, dims=[], data_location=T.EXTERNAL),
        ],
        [value("sum")],
    ).proto
    by_name = {i.name: i for i in m.graph.initializer}
    for name, place in (("w", {"location": location, "offset": str(offset), "length": str(size)}),
                        ("v", {"location": "v.bin"}), ("xs", {"location": "data/w.bin", "offset": "16", "length": "4"})):
        for key, text in place.items():
            by_name[name].external_data.add(key=key, value=text)
    return m


def make_good():
    cases = [chain, codes_io, requant, split, twins, mixed, front, both, brain, plain, scales, subgraph, dynamic, old_ir]
    for case in cases:
        m = case()
        onnx.checker.check_model(m, full_check=case is not scales)
        (GOOD / f"{case.__name__}.onnx").write_bytes(m.SerializeToString(deterministic=True))
        if case is not brain:
            check_runs(GOOD / f"{case.__name__}.onnx")
    folder = GOOD / "external"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "data/w.bin").write_bytes(np.array([1, 2, 3, 4, 0.5], np.float32).tobytes())
    (folder / "v.bin").write_bytes(np.array([5, 6, 7, 8], np.float32).tobytes())
    (folder / "model.onnx").write_bytes(external("data/w.bin").SerializeToString(deterministic=True))
    check_runs(folder / "model.onnx")


def check_runs(path):
    """Feeds ones (dynamic dimensions: 2)."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8, "tensor(bool)": bool}
    feeds = {i.name: np.ones([d if isinstance(d, int) else 2 for d in i.shape], types[i.type])
             for i in session.get_inputs()}
    return session.run(None, feeds)


# --- bad models ---------------------------------------------------------------------------------------------


def relu():
    return Model([value("x")], [value("y")], [node("Relu", "x", "y", "relu")]).proto


def nested(depth):
    """A model whose only node holds a graph that holds a node that holds a graph..."""

    def field(number, payload):
        n, length = len(payload), b""
        while n >= 128:
            length += bytes([n & 127 | 128])
            n >>= 7
        return bytes([number << 3 | 2]) + length + bytes([n]) + payload

    graph = b""
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))  # GraphProto.node, NodeProto.attribute, AttributeProto.g
    return b"\x08\x0a" + field(7, graph)


def quantised(scale, zero_point, **attributes):
    return Model(
        [value("x")],
        [value("y")],
        [node(Q, "x scale zero", "x_q", "x_Q", **attributes), node(DQ, "x_q scale zero", "y", "x_DQ", **attributes)],
        [scale, zero_point],
    ).proto


def make_bad():
    good = relu().SerializeToString()
    scale4 = constant("scale", np.ones(4, np.float32))
    zero4 = constant("zero", np.zeros(4, np.uint8))
    one = constant("scale", np.float32(1))
    x, y = value("x"), value("y")
    nine = (1,) * 9
    files = {
        "empty": b"",
        "text": b"This is a text file, and no model at all.\n",
        "picture": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0:~\x9bU",
        "lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n",
        "ort_format": b"\x1c\0\0\0ORTM" + b"\0" * 24,
        "truncated": good[:-7],
        "no_graph": b"\x08\x0a\x12\x04none",
        "no_ir_version": good[2:],
        "empty_graph": b"\x08\x0a\x3a\x00",
        "too_deep": nested(300),
        "graph_twice": good + good[good.index(b"\x3a"):],
        "nul_in_name": good.replace(b"relu", b"re\0u"),
        "missing_input": Model([x], [y], [node("Add", "x ghost", "y", "add")]).proto,
        "circle": Model([x], [y], [node("Add", "x late", "y", "first"), node("Neg", "y", "late", "second")]).proto,
        "made_twice": Model([x], [y], [node("Relu", "x", "y", "one"), node("Neg", "x", "y", "two")]).proto,
        "makes_input": Model([x], [y], [node("Neg", "x", "x", "neg"), node("Relu", "x", "y", "relu")]).proto,
        "output_twice": Model([x], [y, y], [node("Relu", "x", "y", "relu")]).proto,
        "output_unmade": Model([x], [y, value("ghost")], [node("Relu", "x", "y", "relu")]).proto,
        "input_twice": Model([x, x], [y], [node("Relu", "x", "y", "relu")]).proto,
        "no_operator": Model([x], [y], [node("", "x", "y", "what")]).proto,
        "quantize_without_scale": Model([x], [value("y", T.UINT8)], [node(Q, "x", "y", "x_Q")]).proto,
        "rank_nine": Model([value("x", shape=nine)], [value("y", shape=nine)], [node("Relu", "x", "y", "relu")]).proto,
        "sequence_input": Model([h.make_tensor_sequence_value_info("x", T.FLOAT, None)],
                                [value("y", T.INT64, ())], [node("SequenceLength", "x", "y", "length")]).proto,
        "zero_point_out_of_range": quantised(one, T(name="zero", data_type=T.UINT8, int32_data=[256])),
        "zero_point_float": quantised(one, constant("zero", np.float32(0))),
        "scale_integer": quantised(constant("scale", np.int32(1)), constant("zero", np.uint8(0))),
        "scales_and_zero_points": quantised(scale4, constant("zero", np.zeros(3, np.uint8))),
        "scale_short": quantised(T(name="scale", data_type=T.FLOAT, raw_data=b"\0\0\x80"), zero4),
        "scale_huge": quantised(T(name="scale", data_type=T.FLOAT, dims=[1 << 62, 1 << 62]), zero4),
        "axis_wrong_length": quantised(scale4, zero4, axis=0),
        "axis_outside": quantised(scale4, zero4, axis=5),
        "external_absolute": external("/etc/hostname"),
        "external_escapes": external("data/../../w.bin"),
        "external_missing": external("not-there.bin"),
        "external_short": external("short.bin"),
        "external_folder": external("."),
        "external_offset": external("short.bin", 4, "-1"),
    }
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.SerializeToString(deterministic=True)
        (BAD / f"{name}.onnx").write_bytes(data)
    (BAD / "short.bin").write_bytes(b"123456789")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", nargs="+", metavar="FILE", help="check and run these models instead")
    arguments = parser.parse_args()
    if arguments.check:
        for path in arguments.check:
            onnx.checker.check_model(path, full_check=False)
            outputs = check_runs(path)
            print(path, [f"{o.dtype}{list(o.shape)}" for o in outputs])
        return
    for folder in (GOOD, BAD):
        folder.mkdir(parents=True, exist_ok=True)
    make_good()
    make_bad()


if __name__ == "__main__":
    main()
