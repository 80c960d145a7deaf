#!/usr/bin/env python3
"""Makes golden/imports: small files of other tools, each written by that tool's own library.

    python3 -m venv V && V/bin/pip install -r tools/oracles/make_imports.requirements.txt && V/bin/python tools/oracles/make_imports.py

The same values are in every format; bits.npz has them as unsigned integers, which every reader reads alike. NaN payloads,
infinities, signed zeros and subnormals are among them."""
import collections
import pathlib

import h5py
import ml_dtypes
import numpy as np
import onnx
import polygraphy.comparator
import polygraphy.json
from onnx import numpy_helper
from qai_hub.util.dataset_entries_converters import dataset_entries_to_h5

OUT = pathlib.Path(__file__).resolve().parents[2] / "golden" / "imports"
N_SAMPLES = 3
SPECIAL = {2: [0x7C01, 0xFE55, 0x7C00, 0xFC00, 0x8000, 0x0001],
           4: [0x7F800001, 0xFFC0BEEF, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001],
           8: [0x7FF0000000000001, 0xFFF8DEADBEEF0000, 0x7FF0000000000000, 0xFFF0000000000000, 1 << 63, 1]}
TYPES = ["float32", "float64", "float16", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool"]
SMALL = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
         "uint4": ml_dtypes.uint4, "int4": ml_dtypes.int4}


def values(rng, name):
    shape = (N_SAMPLES, 1, 2, 3)
    dtype = np.dtype(SMALL.get(name, name))
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in ("uint4", "int4"):
        low = 0 if name == "uint4" else -8
        return rng.integers(low, low + 16, shape).astype(np.int8).astype(dtype)
    made = np.frombuffer(rng.bytes(18 * dtype.itemsize), dtype=f"u{dtype.itemsize}").copy()
    if name.startswith("float") and name in TYPES:
        made[:6] = SPECIAL[dtype.itemsize]
    return made.view(dtype).reshape(shape)


def bits(array):
    """As unsigned integers of the same width; 4-bit integers as bytes that hold their value."""
    if array.dtype in (ml_dtypes.uint4, ml_dtypes.int4):
        return array.astype(np.int8).view(np.uint8)
    return array.view(f"u{array.dtype.itemsize}")


def write_onnx(arrays):
    for sample in range(N_SAMPLES):
        folder = OUT / "onnx" / f"test_data_set_{sample}"
        folder.mkdir(parents=True, exist_ok=True)
        for i, (name, array) in enumerate(arrays.items()):
            tensor = numpy_helper.from_array(array[sample], name)
            (folder / f"output_{i}.pb").write_bytes(tensor.SerializeToString())
        image = numpy_helper.from_array(np.full((1, 2), sample, np.float32), "image")
        (folder / "input_0.pb").write_bytes(image.SerializeToString())


def write_polygraphy(arrays):
    results = polygraphy.comparator.RunResults()
    for runner in ("onnxrt", "trt"):
        results.add([collections.OrderedDict((name, array[s]) for name, array in arrays.items())
                     for s in range(N_SAMPLES)], runtime=0.001, runner_name=runner)
    polygraphy.json.save_json(results, str(OUT / "polygraphy.json"))


def main():
    rng = np.random.default_rng(9)
    arrays = {name: values(rng, name) for name in TYPES}
    small = {name: values(rng, name) for name in SMALL}
    OUT.mkdir(parents=True, exist_ok=True)
    np.savez(OUT / "bits.npz", **{name: bits(array) for name, array in (arrays | small).items()})
    write_onnx(arrays | small)
    write_polygraphy(arrays)
    with h5py.File(OUT / "aihub.h5", "w") as file:
        dataset_entries_to_h5({name: list(array) for name, array in arrays.items()}, file)


if __name__ == "__main__":
    main()
