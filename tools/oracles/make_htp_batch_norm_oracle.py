#!/usr/bin/env python3
"""Makes the files of golden/programs that concern BatchNormalization: models of one operator each, random codes, and
the codes that the simulator makes of those (see make_htp_oracle.py, whose files these go beside).

    tools/oracles/make_htp_batch_norm_oracle.py --npudiff build/src/cli/npudiff -o golden/programs"""
import numpy as np

import make_htp_oracle as oracle
from make_htp_oracle import Case

rng = np.random.default_rng(20261123)
N_CHANNELS, SIDE = 12, 8


def case(wide, kind):
    """Factors as uint8 or int8; the other constants as bytes, or a bias of 32 bits or floats beside floats."""
    t, steps = ("uint16", 256) if wide else ("uint8", 1)
    sx, n = np.float32(0.0213 / steps), N_CHANNELS
    reach = float(sx) * 40 * steps
    made = (Case("batchnorm%d-%s" % (16 if wide else 8, kind), "BatchNormalization", n_samples=1, epsilon=1e-4)
            .input("x", t, [1, n, SIDE, SIDE], sx, 117 * steps))
    if kind == "signed":
        made.constant("factor", rng.integers(1, 128, n).astype(np.int8), 0.0137, 0)
    else:
        made.constant("factor", rng.integers(1, 256, n).astype(np.uint8), 0.0087, 70 if kind == "bytes" else 0)
    if kind == "bytes":
        made.constant("bias", rng.integers(0, 256, n).astype(np.uint8), reach / 100, 121)
        made.constant("mean", rng.integers(0, 256, n).astype(np.uint8), reach / 200, 131)
        made.constant("variance", rng.integers(40, 256, n).astype(np.uint8), 0.01, 0)
    else:
        bias = rng.uniform(-reach, reach, n)
        bias[0] = -4 * reach  # the greatest is negative: a positive one may get the wrong sign (docs/results/found.md)
        if kind == "floats":
            made.constant("bias", bias.astype(np.float32))
        else:
            made.constant("bias", np.rint(bias / reach * 3000).astype(np.int32), reach / 3000, 0)
        made.constant("mean", rng.normal(0, reach / 3, n).astype(np.float32))
        made.constant("variance", rng.uniform(0.4, 3, n).astype(np.float32))
    return made.output(t, [1, n, SIDE, SIDE], np.float32(sx * rng.uniform(0.7, 1.6)), 131 * steps)


def cases():
    for wide in (False, True):
        for kind in ("bytes", "words", "floats", "signed"):
            yield case(wide, kind)


if __name__ == "__main__":
    oracle.main(cases)
