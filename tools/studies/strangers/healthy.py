"""Healthy devices: every network on the CPU and on simulated chipsets, and what `explain` says of each capture."""
import pathlib
import tempfile

import numpy as np
import onnx

import imported
import networks
import program
import quantisers
import rows

DEVICES = ["cpu", "gen1", "gen3"]
DISGUISE = "gen3"
FOURTH = "gen5"   # of every fourth network


def devices_of(seed):
    return DEVICES + [FOURTH] if seed % 4 == 0 else DEVICES


def write(seed, folder):
    """The network of a seed as files: model.onnx, float.onnx and samples.npz. (Network, Habits)"""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    network = networks.float_network(seed)
    habits = quantisers.habits_of(seed, [node.op_type for node in network.model.graph.node])
    onnx.save(quantisers.quantised(network, habits, folder), folder / "model.onnx")
    onnx.save(network.model, folder / "float.onnx")
    np.savez(folder / "samples.npz", input=network.samples)
    return network, habits


def disguised(folder):
    """The CPU's values as if gen3 had given them: no layer of them ran on the NPU."""
    done = imported.explain(folder, "disguised", imported.dump(folder / "cpu.h5"), DISGUISE)
    return rows.explained_row(done, None)


def examine(folder, device):
    """One capture and its explanation, as a row."""
    path = folder / f"{device}.h5"
    capture, made = program.capture(folder / "model.onnx", device, folder / "samples.npz", path)
    row = {key: capture.get(key) for key in ("status", "stage", "reason", "sessions", "left_out")}
    row.update(capture_s=made.seconds, capture_processor_s=made.processor_s, capture_code=made.code)
    if capture["status"] == "complete":
        done = program.explain(folder / "model.onnx", path)
        hidden = program.explain(folder / "model.onnx", path, "--hide-placement")
        row.update(rows.explained_row(done, hidden), explain_s=done.seconds, explain_processor_s=done.processor_s)
        if device == "cpu":
            row["disguised"] = disguised(folder)
    return row


def study(seed, path, keep=None):
    """Appends the row of one seed."""
    row = {"part": "healthy", "seed": seed, "commit": rows.commit()}
    with tempfile.TemporaryDirectory(prefix="strangers-") as scratch:
        folder = pathlib.Path(keep) / str(seed) if keep else pathlib.Path(scratch)
        try:
            network, habits = write(seed, folder)
        except Exception as error:   # noqa: BLE001: the quantiser is not ours; the table lists what it refused
            row.update(refused=f"{type(error).__name__}: {error}"[:300], devices={})
            rows.append(path, row)
            return row
        row.update(habits=vars(habits), operators=[node.op_type for node in network.model.graph.node],
                   devices={device: examine(folder, device) for device in devices_of(seed)})
    rows.append(path, row)
    return row
