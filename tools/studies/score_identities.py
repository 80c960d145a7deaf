"""The laws of rounding, read from explain: quantisation is the energy of what the exact unit rounds away, divergence that of the
device against it, and total is their sum and the interaction.

Rounding down has 1/12, 1/2 and 1/3; stochastic rounding 1/12, 1/4 and 1/6. golden/models/identity has one unit whose exact value
is that of the float model."""

import json
import pathlib
import tempfile

import h5py
import numpy as np

from score_run import GOLDEN, Trouble, generator, npudiff, text
from score_table import print_rows

N_SAMPLES = 16  # of 65536 codes
TOLERANCE = 0.01
LAWS = {"emu:round=floor": (1 / 12, 1 / 2, 1 / 3), "emu:round=stochastic:1": (1 / 12, 1 / 4, 1 / 6)}


def measure(folder, devices, seed):
    """{uri: (quantisation, divergence, total)} in steps^2, and how many codes."""
    codes = generator(seed, "identities").integers(0, 256, (N_SAMPLES, 16, 64, 64))
    np.savez(folder / "inputs.npz", x=((codes - 128) * 2.0**-4).astype(np.float32))
    flags = [f for d in devices for f in ("-d", d)]
    npudiff("capture", GOLDEN / "identity.u8.onnx", *flags, "-p", f"score={folder / 'inputs.npz'}", "-q", "-o", folder)
    measured, n_codes = {}, 0
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path, "r") as file:
            y = file["probes/score/outputs/y"][()]
            if y.min() == 0 or y.max() == 255:
                raise Trouble(f"{path.name}: the output is clipped, so that the laws do not hold")
            uri, n_codes = text(file["device"].attrs["uri"]), y.size
        report = json.loads(npudiff("explain", "--quantised", GOLDEN / "identity.u8.onnx", "--float",
                                    GOLDEN / "identity.float.onnx", path, "--json", codes=(0, 1)))  # fmt: skip
        (unit,) = [u for u in report["devices"][0]["layers"] if u["name"] == "y"]
        q = unit["quality"]
        measured[uri] = (q["quantisation"], q["divergence"], q["quantisation"] + q["divergence"] + q["interaction"])
    return measured, n_codes


def run(seed, laws=None):
    """Prints the table; whether all are within TOLERANCE."""
    laws = LAWS if laws is None else laws
    with tempfile.TemporaryDirectory(prefix="score-") as folder:
        measured, n_codes = measure(pathlib.Path(folder), list(laws), seed)
    print(f"identities, {n_codes} codes, in steps^2 (seed {seed})\n")
    rows, is_kept = [["device", "part", "law", "measured", "off"]], True
    for uri, law in laws.items():
        for part, expected, value in zip(("quantisation", "divergence", "total"), law, measured[uri]):
            off = value / expected - 1
            is_kept = is_kept and abs(off) <= TOLERANCE
            rows.append([uri, part, f"{expected:.6f}", f"{value:.6f}", f"{100 * off:+.3f}%"])
    print_rows(rows)
    print(f"\nwithin {100 * TOLERANCE:g}%: {'yes' if is_kept else 'NO'}")
    return is_kept
