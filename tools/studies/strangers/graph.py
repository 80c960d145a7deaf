"""A float ONNX model that grows node by node, with the shape of every tensor known as soon as its node is there."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
INPUT = "input"


class Graph:
    """Tensors are names; `shapes` has the shape of each. `random` is the only source of numbers."""

    def __init__(self, random, opset, shape):
        self.random, self.opset = random, opset
        self.nodes, self.constants = [], {}
        self.shapes = {INPUT: tuple(shape)}
        self.n_names = 0

    def name(self, hint):
        self.n_names += 1
        return f"{hint}_{self.n_names}"

    def constant(self, values, hint="const"):
        name = self.name(hint)
        self.constants[name] = np.asarray(values)
        self.shapes[name] = self.constants[name].shape
        return name

    def floats(self, values, hint="const"):
        return self.constant(np.asarray(values, np.float32), hint)

    def integers(self, values, hint="shape"):
        return self.constant(np.asarray(values, np.int64), hint)

    def node(self, op_type, inputs, n_outputs=1, **attributes):
        """The name of its output, or the list of its outputs if there are several."""
        outputs = [self.name(op_type.lower()) for _ in range(n_outputs)]
        node = helper.make_node(op_type, inputs, outputs, name=outputs[0], **attributes)
        self.shapes.update(self.shapes_after(node))
        self.nodes.append(node)
        return outputs[0] if n_outputs == 1 else outputs

    def shapes_after(self, node):
        fed = [name for name in node.input if name and name not in self.constants]
        graph = helper.make_graph(
            [node], "one", [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in fed],
            [onnx.ValueInfoProto(name=name) for name in node.output],
            [numpy_helper.from_array(self.constants[name], name) for name in node.input if name in self.constants])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
        found = {info.name: tuple(size.dim_value for size in info.type.tensor_type.shape.dim)
                 for info in list(inferred.output) + list(inferred.value_info)}
        return {name: found[name] for name in node.output}

    def model(self):
        """Every tensor that nothing reads is an output."""
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for node in self.nodes for name in node.output if name not in read]
        graph = helper.make_graph(
            self.nodes, "strangers", [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, self.shapes[INPUT])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in outputs],
            [numpy_helper.from_array(values, name) for name, values in self.constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return onnx.shape_inference.infer_shapes(model)
