#!/usr/bin/env python3
"""Makes the files of golden/programs that concern products and their biases: models of one operator each, random
codes, and the codes that the simulator makes of those (see make_htp_oracle.py, whose files these go beside).

    tools/make_htp_product_oracle.py --npudiff build/src/cli/npudiff -o golden/programs"""
import numpy as np

import make_htp_oracle as oracle
from make_htp_oracle import Case

rng = np.random.default_rng(20261123)


def scales_of_channels(n, greatest, ratio):
    return np.float32(greatest * np.exp(-rng.uniform(0, 1, n) * np.log(ratio)))


def steps_above(scales, n):
    for _ in range(n):
        scales = np.nextafter(scales, np.float32(1))
    return scales


def biased(wide, operator="Conv", ratio=1, per_channel=True, bias_factor=1.0, bias_steps=0):
    """A product of 16 channels with biases of all sizes."""
    t, zx, zy = ("uint16", 32768, 30011) if wide else ("uint8", 128, 117)
    n, inner = 16, 12
    sx, sw = np.float32(0.0213), scales_of_channels(n, 0.0117, ratio) if per_channel else np.float32([0.0117])
    sy = np.float32(sx * sw.max() * rng.uniform(150, 300))
    w = rng.integers(-127, 128, [n, inner]).astype(np.int8)
    reach = 60000 * (200 if wide else 1)
    b = np.rint(rng.integers(-reach, reach, n) * np.exp(-rng.uniform(0, 8, n))).astype(np.int32)
    sb = steps_above(np.float32(bias_factor) * (sx * sw), bias_steps)
    sb = sb if per_channel else sb[:1]
    axis = 0 if per_channel else None
    name = "bias%s-%s" % (16 if wide else 8, operator.lower())
    is_conv = operator == "Conv"
    case = Case(name, operator, n_samples=1, **({} if is_conv else {"transB": 1}))
    case.input("x", t, [1, inner, 5, 5] if is_conv else [25, inner], sx, zx)
    case.constant("w", w.reshape([n, inner, 1, 1]) if is_conv else w, sw if per_channel else sw[0], 0, axis)
    case.constant("b", b, sb if per_channel else sb[0], 0, axis)
    return case, t, ([1, n, 5, 5] if is_conv else [25, n]), sy, zy


KINDS = {
    "channels": dict(ratio=30),
    "far": dict(ratio=1000, bias_steps=1),
    "off": dict(ratio=3, bias_steps=300),
    "rescaled": dict(ratio=10, bias_factor=1.3),
    "one": dict(per_channel=False),
    "one-rescaled": dict(per_channel=False, bias_factor=0.37),
}


def cases():
    for wide in (False, True):
        for operator in ("Conv", "Gemm"):
            for kind, options in KINDS.items():
                if operator == "Gemm" and kind not in ("off", "rescaled"):
                    continue
                case, t, shape, sy, zy = biased(wide, operator, **options)
                case.name += "-" + kind
                yield case.output(t, shape, sy, zy)


if __name__ == "__main__":
    oracle.main(cases)
