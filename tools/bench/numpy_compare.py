"""What a short numpy script takes to compare two captures' tensors: allclose and the largest distance in ULP.

usage: numpy_compare.py ROUNDS REF.h5 TEST.h5 DATASET

Prints the seconds of the fastest round (reading and comparing, without starting Python), how many elements differ,
and the largest distance. float32 and float16.
"""
import sys
import time

import h5py
import numpy as np


def ordered(values):
    """Integers in the order of the floats, so that neighbours differ by one."""
    bits = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)


def compare(ref_path, test_path, dataset):
    with h5py.File(ref_path) as ref_file, h5py.File(test_path) as test_file:
        ref, test = ref_file[dataset][...], test_file[dataset][...]
    is_close = np.allclose(test, ref)
    distance = np.abs(ordered(ref) - ordered(test))
    return is_close, np.count_nonzero(distance), distance.max()


def main():
    rounds, ref_path, test_path, dataset = sys.argv[1:]
    fastest = float("inf")
    for _ in range(int(rounds)):
        start = time.perf_counter()
        _, n_differing, max_ulp = compare(ref_path, test_path, dataset)
        fastest = min(fastest, time.perf_counter() - start)
    print(f"{fastest:.6f} {n_differing} {max_ulp}")


main()
