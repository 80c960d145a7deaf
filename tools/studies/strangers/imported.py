"""Values of one capture, stated to be those of a different device or of a different model: `npudiff import numpy`."""
import os
import pathlib
import subprocess

import numpy as np

import program

SDK = "2.51.0"


def dump(capture):
    """{tensor: quantised values} of a capture."""
    path = capture.with_suffix(".npz")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([os.environ.get("STRANGERS_PLAIN_PYTHON", "/usr/bin/python3"), pathlib.Path(__file__).with_name("dump.py"), capture, path],
                   check=True, env=environment)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def explain(folder, name, values, chipset):
    """What `explain` says of values that are stated to be those of this chipset, of the model in the folder. Result"""
    np.savez(folder / f"{name}.npz", **values)
    path = folder / f"{name}-imported.h5"
    done = program.npudiff("import", "numpy", folder / f"{name}.npz", "--model", folder / "model.onnx", "-p", program.PROBE,
                           "--inputs", folder / "samples.npz", "--kind", "npu", "--chipset", chipset, "--sdk", SDK,
                           "--fact", "simulator=yes", "-o", path, "-f", limit_s=program.EXPLAIN_LIMIT_S)
    return program.explain(folder / "model.onnx", path) if done.code == 0 else done
