#!/usr/bin/env python3
"""Makes golden/oracle/compare/*.json: what the kernels of src/compare must give, in exact rational arithmetic.

Nothing here shares code with the C side: values come from bits by the IEEE 754 formula as fractions, ULP distances from
ranks of values, statistics from METRICS.md. Doubles are written as the hexadecimal of their 64 bits.

usage: make_compare_oracle.py OUTPUT_DIR
"""

import json
import math
import random
import struct
import sys
from fractions import Fraction
from pathlib import Path

FLOATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
INTEGERS = {
    "int8": (1, True), "uint8": (1, False), "int16": (2, True), "uint16": (2, False),
    "int32": (4, True), "uint32": (4, False), "int64": (8, True), "uint64": (8, False), "bool": (1, False),
}  # fmt: skip
BLOCK, LANES = 1024, 16


def to_double(exact):
    """The nearest double, ties to even."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def hex_double(value):
    return f"{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


def decode(dtype, bits):
    """'nan', 'inf', '-inf' or the exact value."""
    n_exponent, n_fraction = FLOATS[dtype]
    negative = bits >> (n_exponent + n_fraction)
    exponent = bits >> n_fraction & ((1 << n_exponent) - 1)
    fraction = bits & ((1 << n_fraction) - 1)
    bias = (1 << (n_exponent - 1)) - 1
    if exponent == (1 << n_exponent) - 1:
        return "nan" if fraction else "-inf" if negative else "inf"
    significand = fraction if exponent == 0 else fraction + (1 << n_fraction)
    power = max(exponent, 1) - bias - n_fraction
    value = Fraction(significand) * Fraction(2) ** power
    return -value if negative else value


def rank(dtype, value):
    """How many floats of the type lie between zero and value; from the value, not from its bits."""
    n_exponent, n_fraction = FLOATS[dtype]
    smallest = 2 - (1 << (n_exponent - 1))  # exponent of the smallest normal number
    size = abs(value)
    power = smallest
    while size >= Fraction(2) ** (power + 1):
        power += 1
    steps = size / Fraction(2) ** (power - n_fraction)
    assert steps.denominator == 1
    position = (power - smallest) * (1 << n_fraction) + steps.numerator
    return -position if value < 0 else position


def sum_lanes(errors):
    """Section 6, in double, like every machine that follows it."""
    total = 0.0
    for start in range(0, len(errors), BLOCK):
        lanes = [0.0] * LANES
        for i, error in enumerate(errors[start : start + BLOCK]):
            lanes[i % LANES] += error
        while len(lanes) > 1:
            lanes = [lanes[i] + lanes[i + 1] for i in range(0, len(lanes), 2)]
        total += lanes[0]
    return total


def check_sum(errors, exact, total):
    """The fixed order must stay near the exact sum: all terms are >= 0."""
    if math.isfinite(total) and exact > 0:
        n_roundings = BLOCK // LANES + 5 + len(errors) // BLOCK + 2
        assert abs(Fraction(total) - exact) <= exact * n_roundings * Fraction(1, 2**52) + Fraction(2) ** -1070


def summarise(case, errors, n_left_out):
    n = len(case["ref"])
    total = sum_lanes([to_double(e) for e in errors])
    check_sum(errors, sum(errors, Fraction(0)), total)
    kept = n - n_left_out
    return {
        "max_abs": hex_double(max((to_double(e) for e in errors), default=0.0)),
        "mean_abs": hex_double(total / kept if kept else 0.0),
    }


def integer_value(dtype, bits):
    size, signed = INTEGERS[dtype]
    return bits - (1 << 8 * size) if signed and bits >> (8 * size - 1) else bits


def expect_integers(case):
    dtype, scales = case["dtype"], [Fraction(struct.unpack("<f", bytes.fromhex(s))[0]) for s in case["scales"]]
    histogram, errors, differences, n_fail = [0] * 9, [], [], 0
    for i, (r, t) in enumerate(zip(case["ref"], case["test"])):
        d = integer_value(dtype, t) - integer_value(dtype, r)
        differences.append(d)
        histogram[max(-4, min(4, d)) + 4] += 1
        channel = i // case["inner"] % len(scales) if scales else 0
        scale = scales[channel] if scales else Fraction(1)
        zero = case["zero_points"][channel] if scales else 0
        errors.append(abs(scale) * Fraction(to_double(abs(d))))
        if d:
            limit = case["atol"] + case["rtol"] * abs(to_double(scale * Fraction(to_double(integer_value(dtype, r) - zero))))
            n_fail += abs(d) > case["lsb"] or to_double(errors[-1]) > limit
    n = len(differences)
    where = [i for i, d in enumerate(differences) if d]
    return {
        "differing": len(where), "first": where[0] if where else -1, "histogram": histogram,
        "max_lsb": max(map(abs, differences), default=0),
        "mean_lsb": hex_double(to_double(sum(map(abs, differences))) / n if n else 0.0),
        "signed_mean_lsb": hex_double(to_double(sum(differences)) / n if n else 0.0),
        "failing": n_fail, **summarise(case, errors, 0),
    }  # fmt: skip


def expect_floats(case):
    dtype, ulps, errors, where, n_fail = case["dtype"], [0], [], [], 0
    count = {"nan_mismatch": 0, "nan_payload": 0, "inf_mismatch": 0, "zero_sign": 0}
    for i, (r, t) in enumerate(zip(case["ref"], case["test"])):
        if r == t:
            errors.append(Fraction(0))
            continue
        where.append(i)
        a, b = decode(dtype, r), decode(dtype, t)
        special = {v for v in (a, b) if isinstance(v, str)}
        if special:
            kind = "nan_payload" if a == b == "nan" else "nan_mismatch" if "nan" in special else "inf_mismatch"
            count[kind] += 1
            n_fail += kind != "nan_payload"
            errors.append(Fraction(0))
            continue
        count["zero_sign"] += a == b
        ulps.append(abs(rank(dtype, a) - rank(dtype, b)))
        errors.append(abs(b - a))
        limit = case["atol"] + case["rtol"] * abs(to_double(a))
        n_fail += ulps[-1] > case["ulp"] or to_double(errors[-1]) > limit
    left_out = count["nan_mismatch"] + count["nan_payload"] + count["inf_mismatch"]
    return {
        "differing": len(where), "first": where[0] if where else -1, "max_ulp": str(max(ulps)), "failing": n_fail,
        **count, **summarise(case, errors, left_out),
    }  # fmt: skip


def integer_case(rng, dtype, shape, axis, spread):
    size, _ = INTEGERS[dtype]
    n = math.prod(shape)
    limit = 2 if dtype == "bool" else 1 << 8 * size
    ref = [rng.randrange(limit) for _ in range(n)]
    test = [(r + (rng.randint(-spread, spread) if rng.random() < 0.5 else 0)) % limit for r in ref]
    n_scales = 0 if axis is None else 1 if axis < 0 else shape[axis]
    scales = [struct.pack("<f", rng.choice([0.5, 0.1, 1 / 3, 0.0078125, 3.7e-5])).hex() for _ in range(n_scales)]
    case = {
        "dtype": dtype, "shape": shape, "axis": -1 if axis is None else axis, "scales": scales,
        "zero_points": [rng.randint(-3, 128) for _ in scales],
        "inner": math.prod(shape[axis + 1 :]) if axis is not None and axis >= 0 else 1,
        "lsb": rng.choice([0, 1, 2, 300]), "ulp": 0,
        "atol": rng.choice([0.0, 0.05, 1e6]), "rtol": rng.choice([0.0, 0.01, 0.5]),
        "ref": ref, "test": test,
    }  # fmt: skip
    return {**case, "expect": expect_integers(case)}


def float_bits(rng, dtype):
    n_exponent, n_fraction = FLOATS[dtype]
    inf = ((1 << n_exponent) - 1) << n_fraction
    edges = [0, 1, 2, (1 << n_fraction) - 1, 1 << n_fraction, inf - 1, inf, inf + 1, inf | 1 << (n_fraction - 1)]
    edges.append(((1 << (n_exponent - 1)) - 1) << n_fraction)  # 1.0
    bits = rng.choice(edges) if rng.random() < 0.4 else rng.randrange(1 << (n_exponent + n_fraction))
    return bits | (rng.randrange(2) << (n_exponent + n_fraction))


def float_case(rng, dtype, n, near):
    ref = [float_bits(rng, dtype) for _ in range(n)]
    test = []
    for r in ref:
        move = rng.random()
        if move < 0.4:
            test.append(r)
        elif near and move < 0.9 and r & 0xFFF > 8:
            test.append(r + rng.randint(-5, 5) if r & 7 else r ^ 1)
        else:
            test.append(float_bits(rng, dtype))
    case = {
        "dtype": dtype, "shape": [n], "axis": -1, "scales": [], "zero_points": [], "inner": 1, "lsb": 0,
        "ulp": rng.choice([0, 1, 5, 2**40]), "atol": rng.choice([0.0, 1e-3, 1e30]), "rtol": rng.choice([0.0, 0.1]),
        "ref": ref, "test": test,
    }  # fmt: skip
    return {**case, "expect": expect_floats(case)}


def pack(case):
    size = INTEGERS[case["dtype"]][0] if case["dtype"] in INTEGERS else (sum(FLOATS[case["dtype"]]) + 1) // 8
    for side in ("ref", "test"):
        case[side] = b"".join(bits.to_bytes(size, "little") for bits in case[side]).hex()
    case["atol"], case["rtol"] = hex_double(case["atol"]), hex_double(case["rtol"])
    if "max_lsb" in case["expect"]:
        case["expect"]["max_lsb"] = str(case["expect"]["max_lsb"])
    return case


def make_pairs():
    rng = random.Random(20240601)
    cases = []
    for dtype in INTEGERS:
        for shape, axis in (([7], None), ([2, 3, 5], -1), ([2, 3, 5], 1), ([3, 4], 0), ([4, 3], 1)):
            for spread in (1, 5, 2**70):
                cases.append(integer_case(rng, dtype, shape, axis, spread))
        cases.append(integer_case(rng, dtype, [0, 3], None, 1))
    cases.append(integer_case(rng, "uint8", [1, 2100], -1, 5))
    cases.append(integer_case(rng, "int16", [2, 1030], 0, 2**70))
    for dtype in FLOATS:
        for n in (0, 1, 15, 16, 17, 100, 1030):
            cases += [float_case(rng, dtype, n, near) for near in (True, False)]
    return [pack(case) for case in cases]


def make_ulps():
    rng = random.Random(7)
    rows = []
    for dtype in FLOATS:
        while sum(row["dtype"] == dtype for row in rows) < 200:
            a, b = float_bits(rng, dtype), float_bits(rng, dtype)
            if rng.random() < 0.3:
                b = a ^ rng.randrange(4)
            values = decode(dtype, a), decode(dtype, b)
            if not any(isinstance(v, str) for v in values):
                distance = abs(rank(dtype, values[0]) - rank(dtype, values[1]))
                rows.append({"dtype": dtype, "a": f"{a:x}", "b": f"{b:x}", "ulp": str(distance),
                             "value_a": hex_double(to_double(values[0]) if values[0] or not a else -0.0)})  # fmt: skip
    return rows


def make_mcnemar():
    pairs = [(b, c) for b in range(9) for c in range(9)]
    pairs += [(0, 30), (12, 30), (5, 1000), (480, 520), (1000, 1100), (0, 1074), (3, 1200), (5000, 5200)]
    rows = []
    for b, c in pairs:
        n, k = b + c, min(b, c)
        below = sum(math.comb(n, i) for i in range(k))
        rows.append({"lost": b, "gained": c, "p": hex_double(to_double(Fraction(2 * below + math.comb(n, k), 2**n)))})
    return rows


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("pairs", make_pairs()), ("ulp", make_ulps()), ("mcnemar", make_mcnemar())):
        lines = ",\n".join(json.dumps(row) for row in rows)
        (folder / f"{name}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
