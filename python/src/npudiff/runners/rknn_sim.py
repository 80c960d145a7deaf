"""exec:rknn-sim: Rockchip's NPU in the simulator of rknn-toolkit2.

Option: platform=rk3588 (default), rk3576, rk3566, rk3568 or rk3562.

The simulator takes quantised ONNX models as they are. It hands out floats, so that every quantised tensor that is asked
for gets a DequantizeLinear behind it. Two things are changed in the file, for the reader of rknn-toolkit2 2.3.2: an opset
above 19 is called 19, where all operators are the same in both; scales of one element become scalars."""
import os
import sys
import types

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from npudiff.runner import Runner, RunnerError, main


def stand_in_for_torch():
    """rknn-toolkit2 imports PyTorch (3 GB), and uses it for models of PyTorch alone. What it needs to be imported is here;
    every other name of torch is an AttributeError, which becomes the runner's error."""
    torch = types.ModuleType("torch")
    torch.nn = types.ModuleType("torch.nn")
    torch.Tensor, torch.nn.Module = type("Tensor", (), {}), type("Module", (), {})
    torch.no_grad = lambda: lambda function: function
    sys.modules.update({"torch": torch, "torch.nn": torch.nn})


stand_in_for_torch()
from rknn.api import RKNN # noqa: E402 pylint: disable=wrong-import-position

PLATFORMS = ("rk3588", "rk3576", "rk3566", "rk3568", "rk3562")
NEWEST_OPSET = 19
# Since opset 19 these have gained types and attributes; what a model uses of them is checked by the older schema.
MARK = "/npudiff_real"


def make_scalars(model):
    """Scales and zero points of one element, as an array of rank 1, are not understood for biases."""
    names = {name for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")
             for name in node.input[1:]}
    for constant in model.graph.initializer:
        if constant.name in names and list(constant.dims) == [1]:
            constant.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(constant).reshape(()), constant.name))


def lower_opset(model, log):
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > NEWEST_OPSET:
            log(f"opset {opset.version} is called {NEWEST_OPSET}, which is the newest that the reader takes", 1)
            opset.version = NEWEST_OPSET
    model.ir_version = min(model.ir_version, 9)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise RunnerError(f"the model needs an opset above {NEWEST_OPSET}: {error}") from error


def expose(model, outputs):
    """Makes the tensors the outputs of the graph, quantised ones as real numbers. {name of the output: of the tensor}."""
    quantisers = {node.output[0]: node for node in model.graph.node if node.op_type == "QuantizeLinear"}
    names = {}
    del model.graph.output[:]
    for tensor in outputs:
        name, shape = tensor.name, tensor.shape
        if tensor.scale:
            if tensor.name not in quantisers:
                raise RunnerError(f"'{tensor.name}' is quantised, but by no QuantizeLinear")
            node = quantisers[tensor.name]
            name = tensor.name + MARK
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name == "axis"}
            model.graph.node.append(helper.make_node("DequantizeLinear", [tensor.name, *node.input[1:]], [name],
                                                     name=name, **attributes))
        kind = TensorProto.FLOAT if tensor.scale else helper.np_dtype_to_tensor_dtype(numpy.dtype(tensor.type))
        model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))
        names[name] = tensor.name
    return names


class RknnSim(Runner):
    name, version = "rknn-sim", "1"
    options = ("platform",)

    def __init__(self, link):
        super().__init__(link)
        self.rknn = RKNN(verbose=False)
        self.versions = {"rknn-toolkit2": self.rknn.rknn_base.toolkit_version, "onnx": onnx.__version__}

    def load(self, job):
        platform = job.options.get("platform", PLATFORMS[0])
        if platform not in PLATFORMS:
            raise RunnerError(f"option 'platform' is {', '.join(PLATFORMS)}, not '{platform}'")
        model = onnx.load(job.model)
        lower_opset(model, self.log)
        make_scalars(model)
        names = expose(model, job.outputs)
        path = os.path.abspath("rknn-sim.onnx")
        onnx.save(model, path)
        self.rknn.release()
        self.rknn = RKNN(verbose=False)
        self.rknn.config(target_platform=platform)
        for what, answer in (("load_onnx", lambda: self.rknn.load_onnx(model=path)),
                             ("build", lambda: self.rknn.build(do_quantization=False)),
                             ("init_runtime", lambda: self.rknn.init_runtime())):
            try:
                code = answer()
            except ValueError as error: # a whole traceback, as its text
                raise RunnerError(f"{what} of rknn-toolkit2: {str(error).strip().splitlines()[-1]}", operator=what) from error
            if code != 0:
                raise RunnerError(f"{what} of rknn-toolkit2 gave {code}; its words are in the log", operator=what)
        self.order = self.find_order(names)
        self.missing = self.find_scaled_otherwise(model, job.outputs)

    def find_scaled_otherwise(self, model, outputs):
        """Tensors to which the toolkit gives a scale of its own, not the model's: what they hold are other values."""
        quantisers = {node.output[0]: node for node in model.graph.node if node.op_type == "QuantizeLinear"}
        known, missing = self.rknn.rknn_base.simulator.quant_tab, {}
        for tensor in outputs:
            names = (tensor.name, quantisers[tensor.name].input[0]) if tensor.scale else ()
            for own in (known[name]["scale"] for name in names if name in known and known[name]["dtype"] != "float32"):
                if len(own) == len(tensor.scale) and not numpy.allclose(own, tensor.scale, rtol=1e-6, atol=0):
                    missing[tensor.name] = (f"rknn-toolkit2 quantises it with scale {own[0]:.6g} and not with the model's "
                                            f"{tensor.scale[0]:.6g}")
        return missing

    def find_order(self, names):
        """The tensors in the order in which the simulator hands them out; it says that itself."""
        described = self.rknn.rknn_base.inputs_meta["attrs"]
        places = {described[name]["idx"]: tensor for name, tensor in names.items()
                  if name in described and described[name]["is_output"]}
        if sorted(places) != list(range(len(names))):
            raise RunnerError("rknn-toolkit2 does not say in which order it hands out the tensors")
        return [places[i] for i in range(len(names))]

    def run(self, inputs):
        arrays = [inputs[tensor.name] for tensor in self.job.inputs]
        layouts = ["nchw" if array.ndim == 4 else None for array in arrays]
        results = self.rknn.inference(inputs=arrays, data_format=layouts if "nchw" in layouts else None)
        if results is None or len(results) != len(self.order):
            raise RunnerError("the simulator gave no result, or another number of tensors; its words are in the log")
        return {name: value for name, value in zip(self.order, results) if name not in self.missing}


if __name__ == "__main__":
    main(RknnSim)
