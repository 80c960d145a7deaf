#!/usr/bin/env python3
"""Makes the file beside it, in this folder; needs h5py and numpy.

endless.h5: a dataset of AI Hub in which one byte is wrong. The global heap of HDF5 holds the texts of variable length. The
entry for its free space says that it is smaller than it is, so libhdf5 1.10 reads the zeros after it as an entry of no
bytes, and then the same entry again, for ever. Damage of this kind was first made by flipping random bytes of
golden/imports/aihub.h5."""
import h5py
import numpy as np

with h5py.File("endless.h5", "w") as file:
    file.create_dataset("data/0/batch_0", data=np.arange(4, dtype=np.float32).reshape(1, 4), compression="gzip")
    for name, value in (("order", 0), ("name", "x"), ("batch_count", 1)):
        file["data/0"].attrs[name] = value

with open("endless.h5", "r+b") as file:
    heap = file.read().index(b"GCOL")
    file.seek(heap + 48)  # after the heap's header and its only object, each of 16 bytes and more: the size of the free space
    size = int.from_bytes(file.read(8), "little")
    assert size == 4096 - 40, size
    file.seek(heap + 48)
    file.write((32).to_bytes(8, "little"))
