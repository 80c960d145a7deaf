#!/usr/bin/env python3
"""Makes golden/programs: models of one operator each, random codes for them, and the codes that the simulator of
the HTP makes of those. What src/arithmetic computes is held against these files by test_arithmetics_htp and test_arithmetics_words; no
arithmetic of ours is in them.

    tools/oracles/make_htp_oracle.py --npudiff build/src/cli/npudiff -o golden/programs

Needs numpy, h5py, onnx (make_htp_oracle.requirements.txt) and the runtimes that `npudiff runtimes` lists. For
every case CASE there are CASE.onnx, CASE.<input>.bin (codes of all samples), and CASE.v69.bin, CASE.v73.bin (codes
of the output on htp-sim:gen1 and gen3 with the newest runtime) or CASE.v73-2.48.bin (with QAIRT 2.48), little
endian in C order."""
import argparse
import fnmatch
import os
import subprocess
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENTS = {"uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "int8": TensorProto.INT8}
rng = np.random.default_rng(20261121)


class Case:
    """One operator on dequantised inputs and constants, its output quantised."""

    def __init__(self, name, op, n_samples=2, **attributes):
        self.name, self.op, self.n_samples, self.attributes = name, op, n_samples, attributes
        self.nodes, self.init, self.graph_inputs, self.arguments, self.codes = [], [], [], [], {}
        self.after = []

    def constant(self, name, values, scale=None, zero=None, axis=None):
        self.init.append(numpy_helper.from_array(np.asarray(values), name))
        if scale is None:
            self.arguments.append(name)
            return self
        self.dequantise(name, np.asarray(values).dtype, scale, zero, axis)
        return self

    def dequantise(self, name, dtype, scale, zero, axis=None):
        scale = np.asarray(scale, np.float32)
        zero = np.broadcast_to(np.asarray(zero if zero is not None else 0, dtype), scale.shape).copy()
        self.init += [numpy_helper.from_array(scale, name + "_scale"), numpy_helper.from_array(zero, name + "_zero")]
        more = {} if axis is None else {"axis": axis}
        self.nodes.append(helper.make_node("DequantizeLinear", [name, name + "_scale", name + "_zero"],
                                           [name + "_real"], name=name + "_dequantize", **more))
        self.arguments.append(name + "_real")

    def input(self, name, dtype, shape, scale, zero, codes=None):
        if codes is None:
            codes = rng.integers(0, np.iinfo(dtype).max + 1, [self.n_samples] + shape)
        self.codes[name] = np.asarray(codes).astype(dtype).reshape([self.n_samples] + shape)
        self.graph_inputs.append(helper.make_tensor_value_info(name, ELEMENTS[np.dtype(dtype).name], shape))
        self.dequantise(name, np.dtype(dtype), scale, zero)
        return self

    def then(self, op):
        self.after.append(op)
        return self

    def output(self, dtype, shape, scale, zero):
        made = "real"
        self.nodes.append(helper.make_node(self.op, self.arguments, [made], name="operator", **self.attributes))
        for op in self.after:
            self.nodes.append(helper.make_node(op, [made], [made + "_" + op], name=op))
            made += "_" + op
        self.init += [numpy_helper.from_array(np.float32(scale), "y_scale"),
                      numpy_helper.from_array(np.asarray(zero, dtype), "y_zero")]
        self.nodes.append(helper.make_node("QuantizeLinear", [made, "y_scale", "y_zero"], ["y"], name="quantize"))
        y = helper.make_tensor_value_info("y", ELEMENTS[np.dtype(dtype).name], shape)
        graph = helper.make_graph(self.nodes, self.name, self.graph_inputs, [y], self.init)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        self.model.ir_version = 10
        onnx.checker.check_model(self.model)
        return self


def weights(shape, dtype="uint8", low=None, high=None):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min if low is None else low, (limits.max if high is None else high) + 1,
                        shape).astype(dtype)


def biases(n, reach):
    return rng.integers(-reach, reach + 1, n).astype(np.int32)


def products(wide):
    """Conv, Gemm and MatMul; wide: uint16 activations."""
    t, s, more = ("uint16", 257.0, "16") if wide else ("uint8", 1.0, "8")
    zx, zy, reach = (31000, 33000, 400000) if wide else (121, 131, 3000)
    sx, sy, sw = 0.021 / s, 0.37 / s, 0.013
    yield (Case("conv" + more, "Conv", pads=[1, 1, 1, 1]).input("x", t, [1, 4, 6, 6], sx, zx)
           .constant("w", weights([6, 4, 3, 3]), sw, 118).constant("b", biases(6, reach), [sx * sw], [0])
           .output(t, [1, 6, 6, 6], sy, zy))
    yield (Case("conv%s-relu" % more, "Conv", pads=[1, 1, 1, 1]).input("x", t, [1, 4, 6, 6], sx, zx)
           .constant("w", weights([6, 4, 3, 3]), sw, 126).constant("b", biases(6, reach), [sx * sw], [0])
           .then("Relu").output(t, [1, 6, 6, 6], sy / 2, 0))
    yield (Case("depthwise" + more, "Conv", group=8, pads=[1, 1, 1, 1]).input("x", t, [1, 8, 6, 6], sx, zx)
           .constant("w", weights([8, 1, 3, 3]), sw, 137).constant("b", biases(8, reach), [sx * sw], [0])
           .output(t, [1, 8, 6, 6], sy / 2, zy))
    scales = np.float32(sw * rng.uniform(0.2, 1, 6))
    yield (Case("conv%s-channels" % more, "Conv").input("x", t, [1, 4, 6, 6], sx, zx)
           .constant("w", weights([6, 4, 3, 3], "int8", -127), scales, 0, 0)
           .constant("b", biases(6, reach), np.float32(sx) * scales, 0, 0).output(t, [1, 6, 4, 4], sy / 2, zy))
    yield (Case("gemm" + more, "Gemm", transB=1, n_samples=8).input("x", t, [4, 48], sx, zx)
           .constant("w", weights([10, 48]), sw, 142).constant("b", biases(10, reach), [sx * sw], [0])
           .output(t, [4, 10], sy, zy))
    yield (Case("matmul" + more, "MatMul").input("x", t, [1, 16, 48], sx, zx)
           .constant("w", weights([48, 20]), sw, 130).output(t, [1, 16, 20], sy, zy))
    zero = 30000 if wide else 100
    yield (Case("matmul%s-inputs" % more, "MatMul").input("x", t, [3, 12, 16], sx, zx)
           .input("w", t, [3, 16, 10], sw / s, zero).output(t, [3, 12, 10], sy, zy))


def elements():
    for i, (r1, r2) in enumerate([(0.83, 0.41), (1.31, 0.9), (0.2, 0.13)]):
        yield (Case("add8-%d" % i, "Add").input("a", "uint8", [2048], 0.01 * r1, 119)
               .input("b", "uint8", [2048], 0.01 * r2, 140).output("uint8", [2048], 0.01, 125))
        yield (Case("add16-%d" % i, "Add").input("a", "uint16", [2048], 0.0001 * r1, 33001)
               .input("b", "uint16", [2048], 0.0001 * r2, 30400).output("uint16", [2048], 0.0001, 32110))
    for i, (m, z1, z2, zo) in enumerate([(0.0051, 119, 140, 125), (0.011, 128, 128, 128), (0.0042, 3, 7, 0)]):
        yield (Case("mul8-%d" % i, "Mul").input("a", "uint8", [4096], 0.1, z1).input("b", "uint8", [4096], m, z2)
               .output("uint8", [4096], 0.1, zo))


def calculated():
    """A MatMul whose second operand is a sum that does not fit its codes."""
    case = (Case("add-matmul8", "Add").input("a", "uint8", [16, 10], 0.011, 120)
            .input("b", "uint8", [16, 10], 0.012, 131))
    case.nodes.append(helper.make_node("Add", case.arguments, ["sum_real"], name="add"))
    case.init += [numpy_helper.from_array(np.float32(0.012), "sum_scale"),
                  numpy_helper.from_array(np.uint8(121), "sum_zero")]
    case.nodes.append(helper.make_node("QuantizeLinear", ["sum_real", "sum_scale", "sum_zero"], ["sum"], name="sum_q"))
    case.nodes.append(helper.make_node("DequantizeLinear", ["sum", "sum_scale", "sum_zero"], ["sum_back"], name="sum_dq"))
    case.arguments = []
    case.input("x", "uint8", [12, 16], 0.021, 121)
    case.op = "MatMul"
    case.arguments.append("sum_back")
    yield case.output("uint8", [12, 10], 0.37, 131)


def others():
    yield (Case("average8", "GlobalAveragePool").input("x", "uint8", [1, 64, 5, 7], 0.02, 110)
           .output("uint8", [1, 64, 1, 1], 0.0041, 121))
    yield (Case("average16", "GlobalAveragePool").input("x", "uint16", [1, 64, 5, 7], 0.0002, 31000)
           .output("uint16", [1, 64, 1, 1], 0.000041, 33000))
    yield (Case("mean8", "ReduceMean", keepdims=0).input("x", "uint8", [1, 16, 48], 0.02, 110)
           .constant("axes", np.array([1], np.int64)).output("uint8", [1, 48], 0.0071, 121))
    yield (Case("maxpool8", "MaxPool", kernel_shape=[2, 2], strides=[2, 2]).input("x", "uint8", [1, 4, 8, 8], 0.02, 9)
           .output("uint8", [1, 4, 4, 4], 0.02, 9))
    codes = np.arange(256)
    for op, scale, zero, out, out_zero in [
            ("Abs", 0.03, 120, 0.0151, 0), ("Elu", 0.03, 120, 0.017, 60), ("Exp", 0.02, 160, 0.027, 0),
            ("Gelu", 0.03, 120, 0.0161, 11), ("HardSwish", 0.04, 120, 0.021, 19), ("Relu", 0.03, 120, 0.016, 0),
            ("Sigmoid", 0.05, 128, 1 / 256, 0), ("Sin", 0.03, 120, 0.0079, 127), ("Sqrt", 0.03, 0, 0.0109, 0),
            ("Tanh", 0.02, 128, 1 / 128, 128)]:
        yield (Case(op.lower() + "8", op, n_samples=1).input("x", "uint8", [1, 256], scale, zero, codes)
               .output("uint8", [1, 256], out, out_zero))


def capture_all(npudiff, case, device, folder):
    """The codes of all outputs by name."""
    model, probe = os.path.join(folder, case.name + ".onnx"), os.path.join(folder, "probe.npz")
    onnx.save(case.model, model)
    np.savez(probe, **case.codes)
    out = tempfile.mkdtemp(dir=folder)
    subprocess.run([npudiff, "capture", model, "-p", "codes=" + probe, "-d", device, "-o", out, "-q"], check=True)
    (file,) = os.listdir(out)
    with h5py.File(os.path.join(out, file)) as h:
        return {name: codes[:] for name, codes in h["probes/codes/outputs"].items()}


def capture(npudiff, case, device, folder):
    return capture_all(npudiff, case, device, folder)["y"]


def all_cases():
    return [*products(False), *products(True), *elements(), *others(), *calculated()]


def main(make_cases=all_cases):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npudiff", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--old-runtime", default="@qairt-2.48.40", help="what to append to a device for QAIRT 2.48")
    parser.add_argument("--only", default="*", help="glob of the cases to make; their codes are the same then")
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    for case in make_cases():
        if not fnmatch.fnmatch(case.name, options.only):
            continue
        stem = os.path.join(options.output, case.name)
        devices = [("v69", "htp-sim:gen1"), ("v73", "htp-sim:gen3")]
        if case.op == "Mul":
            devices.append(("v73-2.48", "htp-sim:gen3" + options.old_runtime))
        with tempfile.TemporaryDirectory() as folder:
            for name, device in devices:
                capture(options.npudiff, case, device, folder).tofile("%s.%s.bin" % (stem, name))
        onnx.save(case.model, stem + ".onnx")
        for name, codes in case.codes.items():
            codes.tofile("%s.%s.bin" % (stem, name))


if __name__ == "__main__":
    main()
