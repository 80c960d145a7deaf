#!/usr/bin/env python3
"""Makes golden/cases/lstm.w8a16.onnx and lstm.float.onnx: Conv, LSTM and a product, quantised by ONNX Runtime's own recipe for
Qualcomm's NPU. The committed files are the reference.

Pinned: onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.   usage: make_lstm_case.py FOLDER
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

STEPS, CHANNELS, STATES = 12, 16, 16


class Reader(CalibrationDataReader):
    def __init__(self, random):
        self.samples = iter([{"x": random.normal(0, 1, (1, 8, STEPS)).astype(np.float32)} for _ in range(16)])

    def get_next(self):
        return next(self.samples, None)


def make(random):
    constant = lambda name, *shape, size=0.3: numpy_helper.from_array(random.normal(0, size, shape).astype(np.float32), name)
    zero = lambda name: numpy_helper.from_array(np.zeros((1, 1, STATES), np.float32), name)
    constants = [constant("cw", CHANNELS, 8, 3), constant("cb", CHANNELS, size=0.1), constant("W", 1, 4 * STATES, CHANNELS),
                 constant("R", 1, 4 * STATES, STATES), constant("B", 1, 8 * STATES, size=0.1), zero("h0"), zero("c0"),
                 numpy_helper.from_array(np.array([1], np.int64), "axis"), constant("gw", STATES, 4, size=0.5),
                 constant("gb", 4, size=0.1)]
    nodes = [h.make_node("Conv", ["x", "cw", "cb"], ["conv"], name="conv", pads=[1, 1]),
             h.make_node("Relu", ["conv"], ["relu"], name="relu"),
             h.make_node("Transpose", ["relu"], ["turned"], name="turned", perm=[2, 0, 1]),
             h.make_node("LSTM", ["turned", "W", "R", "B", "", "h0", "c0"], ["lstm", "", ""], name="lstm", hidden_size=STATES),
             h.make_node("Squeeze", ["lstm", "axis"], ["states"], name="states"),
             h.make_node("MatMul", ["states", "gw"], ["scores"], name="scores"),
             h.make_node("Add", ["scores", "gb"], ["logits"], name="logits")]
    graph = h.make_graph(nodes, "lstm", [h.make_tensor_value_info("x", T.FLOAT, [1, 8, STEPS])],
                         [h.make_tensor_value_info("logits", T.FLOAT, [STEPS, 1, 4])], constants)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return onnx.shape_inference.infer_shapes(model)


def main():
    folder, random = pathlib.Path(sys.argv[1]), np.random.default_rng(19)
    path = folder / "lstm.float.onnx"
    onnx.save(make(random), path)
    config = get_qnn_qdq_config(path, Reader(random), activation_type=QuantType.QUInt16, weight_type=QuantType.QUInt8)
    quantize(path, folder / "lstm.w8a16.onnx", config)


if __name__ == "__main__":
    main()
