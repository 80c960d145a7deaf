"""dump.py CAPTURE.h5 DUMP.npz: the quantised values of every tensor of a capture, as docs/reference/capture-format.md says. A program of
its own, because h5py comes with the system's Python and its NumPy."""
import sys

import h5py
import numpy as np


def link(name):
    if name.strip(".") == "":
        return "%2E" + name[1:] if name else "%00"
    return name.replace("%", "%25").replace("/", "%2F")


def main():
    with h5py.File(sys.argv[1], "r") as file:
        (probe,) = file["probes"].values()
        names = [name.decode() for name in file["edges/name"][:]]
        np.savez(sys.argv[2], **{name: probe["outputs"][link(name)][:] for name in names})


if __name__ == "__main__":
    main()
