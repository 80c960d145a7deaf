"""The smallest model that shows a mismatch, by `npudiff reduce`, and what it consists of."""
import shutil

import numpy as np
import onnx

import imported
import mismatches
import program

SESSIONS = 40          # of reduce. Chosen: 12 operators took 12 to 30
REDUCE_S = 900
QUANTISERS = {"QuantizeLinear", "DequantizeLinear"}
N_VALUES = 24          # rows of the table of values


def types_of(path):
    """Types of the quantised values that the model's QuantizeLinear nodes make: "uint8", or "uint8 uint16"."""
    graph = onnx.load(path).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    codes = {constants[node.input[2]].data_type for node in graph.node
             if node.op_type == "QuantizeLinear" and len(node.input) > 2 and node.input[2] in constants}
    return " ".join(sorted(onnx.TensorProto.DataType.Name(code).lower() for code in codes)) or "unknown"


def attributes_of(node):
    """Whole numbers by value; of others only the name, because random networks have other ones each time."""
    parts = []
    for attribute in sorted(node.attribute, key=lambda one: one.name):
        value = onnx.helper.get_attribute_value(attribute)
        whole = isinstance(value, int) or (isinstance(value, (list, tuple)) and all(isinstance(one, int) for one in value))
        text = value.decode() if isinstance(value, bytes) else str(value).replace(" ", "")
        parts.append(f"{attribute.name}={text}" if whole or isinstance(value, bytes) else attribute.name)
    return ",".join(parts)


def operators_of(path):
    """["Gemm(transB=1)", "LeakyRelu(alpha)"], in the order of the graph."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type not in QUANTISERS]
    return [f"{node.op_type}({attributes_of(node)})" for node in nodes]


def arithmetic_of(found):
    """The device that evaluates npudiff's programs for this one."""
    name = found["arithmetic"] or ""
    return f"emu:{name}" if name.startswith("htp-") else "exact"


def reduced(out, folder, device, *arguments):
    """(the folder of the small model or None, the document of reduce)"""
    made = out / "reduced"
    shutil.rmtree(made, ignore_errors=True)
    done = program.npudiff("reduce", folder / "model.onnx", "-d", device, "-p", f"{program.PROBE}={folder / 'samples.npz'}", "-o", made, "-f",
                           "--sessions", SESSIONS, "--time-limit", mismatches.CAPTURE_S, *arguments, limit_s=REDUCE_S)
    has_model = (made / "reproducer.onnx").exists()
    return (made if has_model else None), done.document or {}


def differing_values(made):
    """Of the device's values against the expected ones: how many differ, of how many, the largest difference in LSB, and the first rows
    (tensor, sample, element, expected, observed)."""
    device = next(path for path in made.glob("*.h5") if path.name not in ("reference.h5", "again.h5"))
    expected, observed = imported.dump(made / "reference.h5"), imported.dump(device)
    found = {"wrong": 0, "values": 0, "largest": 0, "rows": []}
    for name in sorted(expected.keys() & observed.keys()):
        if expected[name].shape != observed[name].shape or expected[name].dtype.kind == "f":
            continue
        apart = np.abs(expected[name].astype(np.int64) - observed[name].astype(np.int64))
        wrong = np.argwhere(apart)
        found["values"] += apart.size
        found["wrong"] += len(wrong)
        found["largest"] = max(found["largest"], int(apart.max(initial=0)))
        for at in wrong[: N_VALUES - len(found["rows"])]:
            found["rows"].append([name, int(at[0]), [int(i) for i in at[1:]], int(expected[name][tuple(at)]), int(observed[name][tuple(at)])])
    return found


def difference(out, folder, device, found, mismatch):
    """What is known of the mismatch after it was made small."""
    against = arithmetic_of(found)
    made, document = reduced(out, folder, device, "--differs", "0lsb", "--against", against, "-t", mismatch["layer"])
    small = {"mismatch": mismatch, "against": against, "device": document.get("device", device), "chipset": document.get("chipset"),
             "runtime": document.get("runtime"), "is_small": made is not None, "is_minimal": bool(document.get("minimal")),
             "confirmed": bool(document.get("confirmed")), "folder": made, "model": (made or folder) / ("reproducer.onnx" if made else "model.onnx"),
             "alone": None, "command": document.get("command"), "values": None}
    if made:
        small["values"] = differing_values(made)
        small["alone"] = judged_alone(made, device)
    return describe(small, folder)


def judged_alone(made, device):
    """What explain says of the small model by itself: its wrong layers, or None where it was not captured."""
    captured, _ = mismatches.capture(made / "reproducer.onnx", device, made / "inputs.npz", made / "again.h5", probe="inputs")
    if captured["status"] != "complete":
        return None
    found = mismatches.explained(made / "reproducer.onnx", made / "again.h5")
    return mismatches.wrong_layers(found) if found else None


def failure(out, folder, device, mismatch):
    made, document = reduced(out, folder, device)
    small = {"mismatch": mismatch, "against": None, "device": document.get("device", device), "chipset": document.get("chipset"),
             "runtime": document.get("runtime"), "is_small": made is not None, "is_minimal": bool(document.get("minimal")),
             "confirmed": bool(document.get("confirmed")), "folder": made, "model": (made or folder) / ("reproducer.onnx" if made else "model.onnx"),
             "alone": None, "command": document.get("command"), "values": None}
    return describe(small, folder)


def describe(small, folder):
    small.update(operators=operators_of(small["model"]), types=types_of(small["model"]), whole=folder)
    return small
