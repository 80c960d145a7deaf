#!/usr/bin/env python3
"""Makes golden/oracle/compare: what src/compare must find, worked out from docs/reference/metrics.md by
tools/oracles/compare_oracle.py.

pairs.json   pairs of tensors; tensors of more than a few elements as a recipe that tests/unit/compare/test_compare_oracle.c follows,
             with a checksum of what must come out of it. "numbers" of a case are those that the first row names
ulp.json     two floats and how far they are apart
mcnemar.json p-values

usage: make_compare_oracle.py OUTPUT_DIR [SEED]
"""

import itertools
import json
import math
import random
import struct
import sys
from fractions import Fraction
from pathlib import Path

from compare_oracle import FLOATS, INF, INTEGERS, M64, NAN, Pair, float_value, hex_double, integer_value, rank, rounded, size_of, to_double


# ---- the inputs ----

class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = self.state + 0x9E3779B97F4A7C15 & M64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
        return z ^ z >> 31


class Recipe:
    """Makes elements of one side: `special` of 256 are one of `specials`, the others base + [0, span), in floats with a
    random sign."""

    def __init__(self, dtype, special, base, span):
        self.dtype, self.special, self.base, self.span = dtype, special, base & M64, span
        self.specials = specials_of(dtype)

    def element(self, rng):
        way, bits = rng.next(), rng.next()
        if way % 256 < self.special:
            return self.specials[(way >> 8) % len(self.specials)]
        bits = self.base + (bits % self.span if self.span else bits) & (1 << 8 * size_of(self.dtype)) - 1
        return bits | (way >> 63 << 8 * size_of(self.dtype) - 1 if self.dtype in FLOATS else 0)

    def description(self):
        return {"special": self.special, "base": f"{self.base:x}", "span": f"{self.span:x}"}


def specials_of(dtype):
    mask = (1 << 8 * size_of(dtype)) - 1
    if dtype in INTEGERS:
        _, least, most = INTEGERS[dtype]
        return sorted({v & mask for v in (least, least + 1, 0, 1, most // 2, most - 1, most)})
    n_exponent, n_fraction, _ = FLOATS[dtype]
    top, unit = (1 << n_exponent) - 1 << n_fraction, 1 << n_fraction
    sizes = {0, 1, 2, unit - 1, unit, unit + 1, (1 << n_exponent - 1) - 1 << n_fraction, top - 1, top, top + 1,
             top | unit >> 1, mask >> 1, (mask >> 1) - 1}  # fmt: skip
    return sorted(sizes | {s | mask + 1 >> 1 for s in sizes})


def fill(seed, n, ref, test, ways):
    """The samples of a case: in sample s `ways[s]` = [equal, near] of 256 test elements are those of the reference or
    up to three bits patterns away from them, the others new."""
    rng, samples = SplitMix(seed), []
    mask = (1 << 8 * size_of(test.dtype)) - 1
    for s, (equal, near) in enumerate(ways):
        left, right = [], []
        for _ in range(n):
            left.append(ref.element(rng))
            way = rng.next()
            if way % 256 < equal:
                right.append(left[-1])
            elif way % 256 < equal + near:
                right.append(left[-1] + (way >> 8) % 7 - 3 & mask)
            else:
                right.append(test.element(rng))
        samples.append(((s // 2, s % 2), left, right))
    return samples


def packed(dtype, elements):
    return b"".join(bits.to_bytes(size_of(dtype), "little") for bits in elements)


def checksum(case):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for _, ref, test in case["samples"]:
        for byte in packed(case["ref"]["dtype"], ref) + packed(case["test"]["dtype"], test):
            value = (value ^ byte) * 0x100000001B3 & M64
    return f"{value:016x}"


# ---- cases ----

def calm(dtype):
    """Values that are no extremes."""
    if dtype in INTEGERS:
        _, least, most = INTEGERS[dtype]
        span = min(most - least + 1, 1 << 20)
        return Recipe(dtype, 0, max(least, (least + most) // 2 - span // 2), span)
    n_exponent, n_fraction, _ = FLOATS[dtype]
    around = min(5, (1 << n_exponent - 1) - 2)
    return Recipe(dtype, 0, (1 << n_exponent - 1) - 1 - around << n_fraction, around + 3 << n_fraction)


def wild(dtype, special=128):
    if dtype in INTEGERS:
        _, least, most = INTEGERS[dtype]
        return Recipe(dtype, special, least, most - least + 1 & M64)
    return Recipe(dtype, special, 0, 1 << 8 * size_of(dtype) - 1)


def spiced(dtype):
    recipe = calm(dtype)
    recipe.special = 16
    return recipe


def random_gate(rng, is_integer):
    gate = rng.choice([{"bitwise": 1}, {}, {}, {}])
    if not gate and rng.random() < 0.6:
        gate["lsb" if is_integer else "ulp"] = rng.choice([0, 1, 2, 3, 300])
    if not gate or rng.random() < 0.5:
        gate.update(atol=rng.choice([0.0, 0.05, 1e-3, 1e6]), rtol=rng.choice([0.0, 0.01, 0.5]))
    return gate


def finish_case(rng, case, how=None):
    pair = Pair(case)
    if "gate" not in case:
        case["gate"] = random_gate(rng, pair.is_integer)
    case.setdefault("n_worst", rng.choice([0, 1, 2, 3]))
    case["expect"] = pair.expected()
    case["make"] = how
    return case


def recipe_case(rng, shape, ref, test, ways, sides=None, ulp_in=None):
    seed = rng.getrandbits(64)
    samples = fill(seed, math.prod(shape), ref, test, ways)
    sides = sides or [{"dtype": r.dtype} for r in (ref, test)]
    case = {"shape": shape, "ref": sides[0], "test": sides[1], "samples": samples, "ulp_in": ulp_in}
    how = {"seed": f"{seed:x}", "ref": ref.description(), "test": test.description(), "ways": ways,
           "checksum": checksum(case)}  # fmt: skip
    return finish_case(rng, case, how)


def near_of(dtype, near):
    return 0 if dtype in ("bool", "uint4", "int4") else near


def plain_cases(rng):
    for dtype in [*INTEGERS, *FLOATS]:
        for i, n in enumerate((0, 1, 1, 15, 16, 17, 1023, 1024, 1025, 3000)):
            recipe = (calm, wild, spiced)[i % 3](dtype)
            ulp_in = rng.choice([None, *FLOATS]) if i % 2 else None
            yield recipe_case(rng, [n], recipe, recipe, [[rng.choice([0, 100, 250]), near_of(dtype, 60)]], ulp_in=ulp_in)
        ways = [[256, 0], [200, near_of(dtype, 50)], [256, 0], [0, 0], [250, near_of(dtype, 6)]]
        yield recipe_case(rng, [3, 7, 11], spiced(dtype), spiced(dtype), ways)


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def quantised(rng, dtype, shape, axis):
    n = 1 if axis < 0 else shape[axis]
    scales = [float32(rng.choice([0.5, 0.1, 1 / 3, 0.0078125, 3.7e-5, -0.02, 1e-40])) for _ in range(n)]
    _, least, most = INTEGERS[dtype]
    zeros = [rng.choice([0, max(least, -3), min(most, 7), min(most, 128)]) for _ in scales]
    return {"dtype": dtype, "scales": scales, "zero_points": zeros, "axis": axis}


def quantised_cases(rng):
    for dtype in ("uint8", "int8", "uint16", "int16", "int32", "uint4", "int4", "int64"):
        for shape, axis in (([700], -1), ([2, 3, 5], 0), ([40, 3, 25], 1), ([4, 300], 1)):
            side = quantised(rng, dtype, shape, axis)
            recipe = rng.choice([calm, wild, spiced])(dtype)
            ways = [[rng.choice([0, 128, 250]), near_of(dtype, 100)], [200, near_of(dtype, 50)]]
            yield recipe_case(rng, shape, recipe, recipe, ways, [side, side], rng.choice([None, "float16", "bfloat16"]))


def mixed_cases(rng):
    pairs = [("uint8", "float32"), ("float32", "int8"), ("uint16", "float16"), ("float16", "float32"),
             ("bfloat16", "float32"), ("float64", "float32"), ("float8_e4m3fn", "float16"), ("float8_e5m2", "bfloat16"),
             ("int4", "float64"), ("float64", "bfloat16"), ("float16", "bfloat16"),
             ("float8_e5m2", "float8_e4m3fn")]  # fmt: skip
    for left, right in pairs:
        for make in (calm, wild, spiced):
            shape, axis = rng.choice([([1100], -1), ([6, 5, 9], 1)])
            sides = [quantised(rng, d, shape, axis) if d in INTEGERS else {"dtype": d} for d in (left, right)]
            yield recipe_case(rng, shape, make(left), make(right), [[0, 0], [0, 0]], sides, rng.choice([None, "float16"]))


def hand_case(rng, dtype, shape, ref, tests, **more):
    """One reference for all samples."""
    samples = [((i // 2, i % 2), ref, test) for i, test in enumerate(tests)]
    case = {"shape": shape, "ref": {"dtype": dtype}, "test": {"dtype": dtype}, "samples": samples, **more}
    return finish_case(rng, case)


def f64(*values):
    return [struct.unpack("<Q", struct.pack("<d", v))[0] for v in values]


def changed(ref, where):
    return [v ^ (i in where) for i, v in enumerate(ref)]


def structure_cases(rng):
    dtype = "uint8"
    ref = [rng.randrange(256) for _ in range(120)]
    shape, all_of = [4, 5, 6], range(120)
    spots = [[7], [0], [119], range(30, 60), [31, 37, 43], [5, 11, 17], range(40, 50), range(0, 119), range(1, 120),
             range(3, 120, 7), [10, 20, 40, 70], range(0, 120, 2), [16, 17, 40, 55, 119], [32, 33, 50, 113],
             [32, 33, 50, 112], all_of, [3, 77], rng.sample(all_of, 61), rng.sample(all_of, 60)]  # fmt: skip
    for where in spots:
        yield hand_case(rng, dtype, shape, ref, [changed(ref, where)])
    yield hand_case(rng, dtype, shape, ref, [changed(ref, range(40, 50)), ref, changed(ref, range(40, 50))])
    yield hand_case(rng, dtype, shape, ref, [changed(ref, [9]), changed(ref, [9])])
    yield hand_case(rng, dtype, shape, ref, [changed(ref, [9]), changed(ref, [10, 69])])
    turns = ([4, 5, 6], (2, 0, 1)), ([4, 5, 6], (0, 2, 1)), ([6, 6], (1, 0)), ([2, 3, 4, 5], (3, 1, 0, 2))
    for lengths, permutation in turns:
        values = [rng.randrange(256) for _ in range(math.prod(lengths))]
        strides = [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
        moved = [values[sum(c * strides[a] for c, a in zip(at, permutation))]
                 for at in itertools.product(*(range(lengths[a]) for a in permutation))]  # fmt: skip
        yield hand_case(rng, dtype, lengths, values, [moved])


def signal_cases(rng):
    big, tiny = sys.float_info.max, 5e-324
    rows = [
        ([0.0] * 4, [0.0, -0.0, 0.0, 0.0]), ([0.0] * 4, [1.0, 0.0, 0.0, 0.0]), ([1.0, 0.0, 0.0, 0.0], [0.0] * 4),
        ([1.0] * 5, [1.0, 1.0, 1.0, 1.0, 1.5]), ([1.0, 2.0, 3.0], [1.0] * 3), ([1.0] * 3, [2.0] * 3),
        ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]), ([1.0, 2.0, 3.0, 4.0], [3.0, 5.0, 7.0, 9.0]),
        ([1e200, 1.0, 2.0], [1e200, 1.0, 3.0]), ([1.0, 1e200, 3.0], [1.0, 2.0, 3.0]), ([1.0, 2.0], [1e200, -1e200]),
        ([big, 1.0], [-big, 1.0]), ([tiny, 0.0], [0.0, tiny]), ([tiny, 1.0, -tiny], [3 * tiny, 1.0, tiny]),
        ([NAN, 1.0, 2.0], [0.0, 1.0, 2.0]), ([NAN, INF], [1.0, -INF]), ([INF, 1.0, 2.0], [INF, 1.0, 2.5]),
        ([INF, -INF], [-INF, INF]), ([1e-20, 1e-20], [9e-20, 1e-20]), ([1e-160, 2e-160], [1e-160, 3e-160]),
        ([1e8, 1e8, 1e8 + 1], [1e8, 1e8 + 1, 1e8]), ([1e16, 1.0, -1e16], [1e16, 2.0, -1e16]), ([5.0], [6.0]),
        ([tiny, 1.0], [2e-323, 1.0]), ([1e-310, 3e-310], [2e-310, 3e-310]), ([3.0, 1e300], [4.0, 1e300]),
        ([2.0**20, 2.0**20 + 1], [2.0**20, 2.0**20 + 2]), ([2.0**18, 2.0**18 + 1], [2.0**18, 2.0**18 + 2]),
    ]  # fmt: skip
    for ref, test in rows:
        yield hand_case(rng, "float64", [len(ref)], f64(*ref), [f64(*test)], n_worst=5, ulp_in=rng.choice([None, "float32"]))
    quiet, loud = f64(NAN)[0], f64(NAN)[0] + 1
    for last, gate in ((2, {"atol": 0.0, "rtol": 0.0}), (4, {"bitwise": 1})):
        yield hand_case(rng, "float64", [3], [quiet, *f64(1, 2)], [[loud, *f64(1, last)]], n_worst=5, gate=gate)
    yield hand_case(rng, "float64", [3], f64(0, 1, 2), [f64(-0.0, 1, 2)], n_worst=5, gate={"ulp": 0})


def compute_in(dtype, code, zero, scale, is_split):
    """The real value of a code as a unit that computes in the type makes it: by a difference or by two products."""
    def fit(value):
        return float_value(dtype, rounded(dtype, value))

    scale = fit(scale)
    return fit(fit(code * scale) - fit(zero * scale)) if is_split else fit((code - zero) * scale)


def dequantised_cases(rng):
    rows = [("uint8", "float32", "float32"), ("uint16", "float32", "float32"), ("uint8", "float32", "float16"),
            ("int8", "float16", "float16"), ("uint8", "float64", "float32"), ("int32", "float32", "float32"),
            ("uint16", "float32", "float16"), ("int4", "bfloat16", "bfloat16")]  # fmt: skip
    for dtype, stored, computed in rows:
        for is_split in (False, True):
            side = quantised(rng, dtype, [40], -1)
            scale, zero = side["scales"][0], side["zero_points"][0]
            _, least, most = INTEGERS[dtype]
            codes = [rng.randint(least, most) & (1 << 8 * INTEGERS[dtype][0]) - 1 for _ in range(40)]
            floats = []
            for i, bits in enumerate(codes):
                code = integer_value(dtype, bits) + (i % 13 == 12)  # these few are another code
                floats.append(rounded(stored, compute_in(computed, code, zero, scale, is_split)))
            case = {"shape": [40], "ref": side, "test": {"dtype": stored}, "samples": [((0, 0), codes, floats)]}
            if is_split:
                case.update(ref=case["test"], test=side, samples=[((0, 0), floats, codes)])
            yield finish_case(rng, case)


def make_pairs(rng):
    return [*plain_cases(rng), *quantised_cases(rng), *mixed_cases(rng), *structure_cases(rng), *signal_cases(rng),
            *dequantised_cases(rng)]  # fmt: skip


# ---- as JSON ----

FIELDS = """n_samples n_samples_differing n_elems n_differing share n_failing
max_lsb mean_lsb signed_mean_lsb max_ulp max_ulp_in
abs.max abs.mean abs.median abs.p99 rel.max rel.mean rel.median rel.p99 rmse n_rel_undefined
sqnr_db cosine norm_ratio pearson has_gain gain offset
n_nan_mismatch n_nan_payload n_inf_mismatch n_zero_sign n_saturation_mismatch
ref_side.elements ref_side.nan ref_side.inf ref_side.zero ref_side.subnormal ref_side.saturated ref_side.stuck
ref_side.min ref_side.max
test_side.elements test_side.nan test_side.inf test_side.zero test_side.subnormal test_side.saturated test_side.stuck
test_side.min test_side.max
structure.first_index structure.last_index structure.stride structure.n_runs structure.longest_run
tolerance.is_possible tolerance.lsb tolerance.ulp tolerance.atol tolerance.rtol n_dequantised""".split()


def word(value):
    """Whole numbers in decimal; doubles as x and the hexadecimal of their bits without zeros at the end."""
    return f"x{hex_double(value).rstrip('0')}" if isinstance(value, float) else str(value)


def expect_row(found):
    flat = dict(found)
    for key in ("structure", "tolerance"):
        flat.update({f"{key}.{name}": value for name, value in found[key].items()})
    row = {"numbers": " ".join(word(flat.get(name, 0)) for name in FIELDS), "first": found["first"],
           "histogram": found.get("lsb_histogram"), **{key: found["structure"].get(key) for key in
                                                       ("axes", "pattern", "axis", "permutation")}}  # fmt: skip
    row["worst"] = [[word(v) if isinstance(v, float) else v for v in item] for item in found["worst"]]
    return {key: value for key, value in row.items() if value not in (None, [])}


def side_row(side):
    scales = [struct.pack(">f", s).hex() for s in side.get("scales", [])]
    row = {"dtype": side["dtype"]}
    if scales:
        row.update(scales=scales, zero_points=side["zero_points"], axis=side["axis"])
    return row


def case_row(case):
    row = {"shape": case["shape"], "ref": side_row(case["ref"]), "test": side_row(case["test"])}
    if case["make"]:
        row["make"] = case["make"]
    else:
        row["samples"] = [[packed(case["ref"]["dtype"], ref).hex(), packed(case["test"]["dtype"], test).hex()]
                          for _, ref, test in case["samples"]]  # fmt: skip
    row["gate"] = {k: word(v) for k, v in case["gate"].items()}
    if case.get("ulp_in"):
        row["ulp_in"] = case["ulp_in"]
    return {**row, "n_worst": case["n_worst"], "expect": expect_row(case["expect"])}


def make_ulps(rng):
    for dtype in FLOATS:
        for _ in range(70):
            make = wild(dtype)
            source = SplitMix(rng.getrandbits(64))
            a, b = make.element(source), make.element(source)
            if rng.random() < 0.3:
                b = a ^ rng.randrange(4)
            x, y = float_value(dtype, a), float_value(dtype, b)
            if math.isfinite(x) and math.isfinite(y):
                yield [dtype, f"{a:x}", f"{b:x}", str(abs(rank(dtype, x) - rank(dtype, y))), hex_double(x)]


def make_mcnemar():
    pairs = [(b, c) for b in range(9) for c in range(9)]
    pairs += [(0, 30), (12, 30), (5, 1000), (480, 520), (1000, 1100), (0, 1074), (3, 1200), (5000, 5200)]
    for b, c in pairs:
        n, k = b + c, min(b, c)
        below = sum(math.comb(n, i) for i in range(k))
        yield {"lost": b, "gained": c, "p": hex_double(to_double(Fraction(2 * below + math.comb(n, k), 2**n)))}


def main():
    folder, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20250712
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}")
    rng = random.Random(seed)
    specials = {dtype: [f"{b:x}" for b in specials_of(dtype)] for dtype in [*INTEGERS, *FLOATS]}
    head = {"specials": specials, "numbers": FIELDS}
    tables = {"pairs": [head, *map(case_row, make_pairs(rng))], "ulp": make_ulps(rng), "mcnemar": make_mcnemar()}
    for name, rows in tables.items():
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        (folder / f"{name}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
