#!/usr/bin/env python3
"""Makes golden/encodings: encodings of the golden CNN that the real AIMET exported, and what its own simulation gives.

    python3.11 -m venv VENV && VENV/bin/pip install -r tools/oracles/make_encodings.requirements.txt
    VENV/bin/python tools/oracles/make_encodings.py [--out DIR]

Run once; the committed files are the reference. golden/models/cnn.float.onnx is calibrated (minimum and maximum) on
digits-calibration.npz in three ways:

    per-channel     weights int8 per channel, activations uint8   AIMET's default configuration for ONNX
    per-tensor      weights int8 per tensor, activations uint8    the same with per_channel_quantization off
    w8a16           weights int8 per channel, activations uint16

and exported as cnn.<way>.<version>.encodings in the versions 0.6.1, 1.0.0 and 2.0.0. With them goes
cnn.<way>.simulated.npz, of AIMET's own simulation with the optimisations of ONNX Runtime off:

    activation/<tensor>         codes of the first 8 images of digits-test.npz, for every tensor that AIMET quantises
    qdq/<tensor>                codes of two late tensors from the QDQ model that AIMET makes of its simulation, with the int32
                                biases of version 2.0.0, in ONNX Runtime with the optimisations off
    bias/<tensor>               codes of the biases (int32) in that model
    param/<tensor>              codes of the weights (int8)

The biases are taken from AIMET's QDQ model because its simulation cannot serve: it rounds a bias in float32 with an offset of
-2^31 added, which leaves steps of 128 and more (measured: off by up to 123 steps of the scale).

A code is what AIMET's simulated float divided by the scale rounds to (plus the zero point); that the quotient is that whole
number to within 1/100 is checked, so nothing is guessed. "/" in the names of tensors is "|" here, as npz members are files.

AIMET's wheel needs glibc 2.34 and Python 3.10 or newer. It warns that 0.6.1 is deprecated; that is the point of it.
"""
import argparse
import json
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime
from aimet_onnx.quantsim import QuantizationSimModel
from aimet_onnx.utils import OrtInferenceSession, register_aimet_custom_ops

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
VERSIONS = ("0.6.1", "1.0.0", "2.0.0")
WAYS = {"per-channel": ("int8", True), "per-tensor": ("int8", False), "w8a16": ("int16", True)}
N_IMAGES = 8
LATE = ("residual/relu", "logits")

CONFIGURATION = {
    "defaults": {
        "ops": {"is_output_quantized": "True"},
        "params": {"is_quantized": "True", "is_symmetric": "True"},
        "strict_symmetric": "False",
        "per_channel_quantization": "True",
    },
    "params": {"bias": {"is_quantized": "False"}},
    "op_type": {},
    "supergroups": [{"op_list": ["Conv", "Relu"]}, {"op_list": ["Add", "Relu"]}],
    "model_input": {"is_input_quantized": "True"},
    "model_output": {},
}


def make_simulation(activation_type, is_per_channel, images, folder):
    configuration = json.loads(json.dumps(CONFIGURATION))
    configuration["defaults"]["per_channel_quantization"] = str(is_per_channel)
    path = folder / "configuration.json"
    path.write_text(json.dumps(configuration))
    simulation = QuantizationSimModel(
        onnx.load(GOLDEN / "models" / "cnn.float.onnx"), param_type="int8", activation_type=activation_type,
        quant_scheme="min_max", config_file=str(path), dummy_input={"image": images[:1]},
        providers=["CPUExecutionProvider"])
    simulation.compute_encodings([{"image": image[None]} for image in images])
    return simulation


def simulate(simulation, images):
    """{tensor: simulated floats}"""
    model = simulation.model.model
    quantisers = {}
    for node in model.graph.node:
        if node.op_type == "QcQuantizeOp":
            name = node.name.removeprefix("QcQuantizeOp_")
            if simulation.qc_quantize_op_dict[name].enabled:
                quantisers[name] = node.output[0]
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    known = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.ValueInfoProto(name=made) for made in quantisers.values() if made not in known)
    options = register_aimet_custom_ops(onnxruntime.SessionOptions())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = OrtInferenceSession(exposed, ["CPUExecutionProvider"], options)
    made = [session.run(list(quantisers.values()), {"image": image[None]}) for image in images]
    return {name: np.stack([run[i] for run in made]) for i, name in enumerate(quantisers)}


def codes_of(values, scale, zero_point, axis, dtype):
    """The codes that simulated floats stand for."""
    scale, zero_point = np.float64(scale), np.float64(zero_point)
    if scale.ndim == 1:
        shape = [1] * values.ndim
        shape[axis] = -1
        scale = scale.reshape(shape)
    quotient = values.astype(np.float64) / scale
    whole = np.rint(quotient)
    assert np.abs(quotient - whole).max() < 0.01 # float32 has 24 bits, codes up to 16
    codes = whole + zero_point
    limits = np.iinfo(dtype)
    assert limits.min <= codes.min() and codes.max() <= limits.max
    return codes.astype(dtype)


def collect(encodings, simulated):
    arrays = {}
    for item in encodings["encodings"]:
        name = item["name"]
        if name not in simulated:
            continue # a bias, or a tensor that only moves data: exported, not simulated
        key = name.replace("/", "|")
        parameters = (item["y_scale"], item.get("y_zero_point", 0))
        if item["name"].endswith(".weight"):
            axis = item.get("axis", 0)
            arrays[f"param/{key}"] = codes_of(simulated[name][0], *parameters, axis, item["output_dtype"])
        else:
            arrays[f"activation/{key}"] = codes_of(simulated[name], *parameters, None, item["output_dtype"])
    return arrays


def run_qdq(simulation, images):
    """Codes of AIMET's own QDQ model."""
    model = simulation.to_onnx_qdq(export_int32_bias=True, prequantize_constants=True)
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    arrays = {f"bias/{node.output[0].removesuffix('_qdq')}": constants[node.input[0]] for node in model.graph.node
              if node.op_type == "DequantizeLinear" and node.output[0].endswith(".bias_qdq")}
    quantised = {node.output[0].removesuffix("_q"): node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    chosen = {name: quantised[name] for name in LATE}
    model.graph.output.extend(onnx.ValueInfoProto(name=made) for made in chosen.values())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    made = [session.run(list(chosen.values()), {"image": image[None]}) for image in images]
    return arrays | {f"qdq/{name.replace('/', '|')}": np.stack([run[i] for run in made]) for i, name in enumerate(chosen)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=GOLDEN / "encodings")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    calibration = np.load(GOLDEN / "models" / "digits-calibration.npz")["image"].copy()
    images = np.load(GOLDEN / "models" / "digits-test.npz")["image"][:N_IMAGES].copy()
    for way, (activation_type, is_per_channel) in WAYS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            simulation = make_simulation(activation_type, is_per_channel, calibration, folder)
            for version in VERSIONS:
                simulation.export(str(folder), f"cnn.{way}.{version}", export_model=False, encoding_version=version)
                made = json.loads((folder / f"cnn.{way}.{version}.encodings").read_text())
                (out / f"cnn.{way}.{version}.encodings").write_text(json.dumps(made, indent=1) + "\n")
            simulated = simulate(simulation, images)
            arrays = collect(made, simulated) | run_qdq(simulation, images)
            np.savez_compressed(out / f"cnn.{way}.simulated.npz", **arrays)
            print(way, {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()})


if __name__ == "__main__":
    main()
