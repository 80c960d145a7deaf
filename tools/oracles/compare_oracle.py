"""What docs/reference/metrics.md#bits to #accounting, #structure, #worst, #mixed-types and #gates say of a pair of tensors,
in exact rational arithmetic.

Nothing here shares code with the C side. Values come from bits by the formula of their type, as fractions; distances from
the rank of a value among those of its type; sums by lanes and blocks in double (Python's + * / and sqrt are IEEE double,
correctly rounded), then exactly.

A case: {"shape": of a sample; "ref", "test": {"dtype", "scales", "zero_points", "axis"} (the last three of quantised
integers); "samples": [((probe, sample), bits of the reference's elements, bits of the test's)]; "gate": {"bitwise" or any
of "lsb", "ulp" and ("atol" with "rtol")}; "n_worst"; "ulp_in": a float type or None}.
"""

import functools
import itertools
import math
import struct
from fractions import Fraction

# exponent bits, fraction bits, whether the highest exponent holds infinities and NaNs only
FLOATS = {
    "float64": (11, 52, True), "float32": (8, 23, True), "float16": (5, 10, True), "bfloat16": (8, 7, True),
    "float8_e4m3fn": (4, 3, False), "float8_e5m2": (5, 2, True),
}  # fmt: skip
# bytes, least, largest
INTEGERS = {f"{sign}int{8 * n}": (n, 0 if sign else -(1 << 8 * n - 1), (1 << 8 * n - (not sign)) - 1)
            for n in (1, 2, 4, 8) for sign in ("u", "")}  # fmt: skip
INTEGERS.update({"uint4": (1, 0, 15), "int4": (1, -8, 7), "bool": (1, 0, 1)})
BLOCK, LANES = 1024, 16
M64 = (1 << 64) - 1
NAN, INF = math.nan, math.inf
TINY_SHARE = 2.0**-40


# ---- numbers ----

def bits_of(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def from_bits(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def hex_double(value):
    return f"{bits_of(value):016x}"


def to_double(exact):
    """The nearest double, ties to even: int / int rounds once in Python, subnormal results too."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return INF if exact > 0 else -INF


def divide(a, b):
    """As IEEE has it."""
    if b != 0:
        return a / b
    return NAN if a == 0 or math.isnan(a) else math.copysign(INF, a)


def root(value):
    return math.sqrt(value) if value >= 0 else NAN


def log10(value):
    return -INF if value == 0 else math.log10(value) if value > 0 else NAN


def size_of(dtype):
    return INTEGERS[dtype][0] if dtype in INTEGERS else sum(FLOATS[dtype][:2]) // 8 + 1


@functools.cache
def float_value(dtype, bits):
    """The value as double (all types fit); NaN and infinities, too."""
    n_exponent, n_fraction, has_inf = FLOATS[dtype]
    exponent, fraction = bits >> n_fraction & (1 << n_exponent) - 1, bits & (1 << n_fraction) - 1
    sign = -1.0 if bits >> n_exponent + n_fraction else 1.0
    if exponent == (1 << n_exponent) - 1 and (has_inf or fraction == (1 << n_fraction) - 1):
        return NAN if fraction else sign * INF
    significand = fraction + (exponent > 0) * (1 << n_fraction)
    power = max(exponent, 1) - ((1 << n_exponent - 1) - 1) - n_fraction
    return sign * to_double(Fraction(significand) * Fraction(2) ** power)


def integer_value(dtype, bits):
    size, least, _ = INTEGERS[dtype]
    return bits - (1 << 8 * size) if least < 0 and bits >> 8 * size - 1 else bits


def largest_bits(dtype):
    """Of the largest finite value."""
    n_exponent, n_fraction, has_inf = FLOATS[dtype]
    return ((1 << n_exponent) - 1 << n_fraction) - 1 if has_inf else (1 << n_exponent + n_fraction) - 2


@functools.cache
def largest(dtype):
    return float_value(dtype, largest_bits(dtype))


@functools.cache
def smallest_normal(dtype):
    return float_value(dtype, 1 << FLOATS[dtype][1])


def rank(dtype, value):
    """The place of a value among those of the type, 0 at zero; values between two go to the nearest, ties to even; what
    is too large goes one beyond the largest."""
    n_exponent, n_fraction, _ = FLOATS[dtype]
    least = 2 - (1 << n_exponent - 1)  # exponent of the smallest normal number
    if math.isinf(value):
        place = 1 << 70
    else:
        size, power = abs(Fraction(value)), least
        if size:
            power = max(least, size.numerator.bit_length() - size.denominator.bit_length() - 1)
            power += size >= Fraction(2) ** (power + 1)
        place = (power - least << n_fraction) + round(size / Fraction(2) ** (power - n_fraction))
    place = min(place, largest_bits(dtype) + 1)
    return -place if value < 0 else place


# ---- sums (section 2) ----

class Sum:
    """Doubles added exactly, rounded once at the end."""

    def __init__(self):
        self.exact, self.special = Fraction(0), 0.0

    def add(self, value):
        if math.isfinite(value):
            self.exact += Fraction(value)
        else:
            self.special += value

    def value(self):
        return to_double(self.exact) if self.special == 0 else self.special


def add_sample(total, terms):
    """Adds the terms of one sample: lanes, blocks."""
    for start in range(0, len(terms), BLOCK):
        lanes = [0.0] * LANES
        for i, term in enumerate(terms[start : start + BLOCK]):
            lanes[i % LANES] += term
        while len(lanes) > 1:
            lanes = [a + b for a, b in zip(lanes[::2], lanes[1::2])]
        total.add(lanes[0])


def quantile(errors, numerator, denominator):
    """Section 6; the lower edge of a bin has the six highest bits of the fraction."""
    if not errors:
        return 0.0
    value = sorted(errors)[max(1, -(-numerator * len(errors) // denominator)) - 1]
    return from_bits(bits_of(value) >> 46 << 46)


# ---- one side ----

class Side:
    """A tensor: {"dtype", "scales" (floats), "zero_points", "axis"}, as section 2 takes its values."""

    def __init__(self, side, shape, is_mixed):
        self.dtype, self.is_float = side["dtype"], side["dtype"] in FLOATS
        scales = [] if self.is_float else side.get("scales", [])
        self.scales, self.zero_points = scales, side.get("zero_points", [])
        self.is_real = is_mixed or len(scales) > 1 or side.get("axis", -1) >= 0
        self.unit = 1.0 if self.is_real or not scales else scales[0]
        self.inner = math.prod(shape[side["axis"] + 1 :]) if side.get("axis", -1) >= 0 else 1

    def channel(self, index):
        return index // self.inner % len(self.scales)

    def x(self, index, bits):
        if self.is_float:
            return float_value(self.dtype, bits)
        if not self.scales:
            return float(integer_value(self.dtype, bits))
        channel = self.channel(index)
        x = float(integer_value(self.dtype, bits)) - float(self.zero_points[channel])
        return self.scales[channel] * x if self.is_real else x

    def stored(self, bits):
        return float_value(self.dtype, bits) if self.is_float else float(integer_value(self.dtype, bits))

    def real(self, x):
        return self.unit * x

    def is_saturated(self, bits, beyond):
        if not self.is_float:
            return float(integer_value(self.dtype, bits)) in map(float, INTEGERS[self.dtype][1:])
        size = abs(float_value(self.dtype, bits))
        return size >= largest(self.dtype) if beyond else size == largest(self.dtype)

    def account(self, samples):
        """Section 8, one side; samples are lists of (bits, x)."""
        values = [item for sample in samples for item in sample]
        finite = [x for _, x in values if math.isfinite(x)]
        reals = [self.real(x) + 0.0 for x in finite]
        tiny = smallest_normal(self.dtype) if self.is_float else 0
        return {
            "elements": len(values), "nan": sum(math.isnan(x) for _, x in values),
            "inf": sum(math.isinf(x) for _, x in values), "zero": sum(x == 0 for x in finite),
            "subnormal": sum(0 < abs(x) < tiny for x in finite),
            "saturated": sum(self.is_saturated(bits, False) for bits, _ in values),
            "stuck": sum(len(s) > 1 and all(x == s[0][1] and math.isfinite(x) for _, x in s) for s in samples),
            "min": min(reals, default=NAN), "max": max(reals, default=NAN),
        }  # fmt: skip


# ---- codes against floats (section 12) ----

def rounded(dtype, value):
    """The bits of the float of the type that is nearest, ties to even."""
    place = min(abs(rank(dtype, value)), largest_bits(dtype))
    return place | (value < 0) << sum(FLOATS[dtype][:2])


def is_within_roundings(dtype, code, zero, scale, value):
    error = abs(Fraction(value) - Fraction(scale) * (code - zero))
    unit, scale = Fraction(2) ** (-FLOATS[dtype][1] - 1), abs(Fraction(scale))
    tiny = Fraction(smallest_normal(dtype)) * 2 * unit
    return error <= 2 * unit * scale * (abs(code) + abs(zero) + abs(code - zero)) + 3 * tiny / 2 and error < scale / 2


def is_dequantised(dtype, code, zero, scale, value):
    if math.isnan(value) or math.isinf(value):
        return False
    if rank(dtype, float(scale * (code - zero))) == rank(dtype, value):
        return True
    types = [dtype] + [t for t in ("float32", "float16")
                       if FLOATS[t][1] < FLOATS[dtype][1] and float_value(t, rounded(t, value)) == value]  # fmt: skip
    return any(is_within_roundings(t, code, zero, scale, value) for t in types)


# ---- a pair ----

class Element:
    """Two elements that stand beside each other."""

    def __init__(self, place, ref, test, r_bits, t_bits, is_mixed):
        self.place, self.index, self.bits = place, place[2], (r_bits, t_bits)
        self.r, self.t = ref.x(self.index, r_bits), test.x(self.index, t_bits)
        r, t = self.r, self.t
        both_nan = math.isnan(r) and math.isnan(t)
        self.differs = not (r == t or both_nan) if is_mixed else r_bits != t_bits
        self.is_rounding = self.differs and ref.is_float != test.is_float and self.rounds(ref, test)
        self.differs = self.differs and not self.is_rounding
        self.kind = None
        if self.differs and both_nan:
            self.kind = "nan_payload"
        elif self.differs and (math.isnan(r) or math.isnan(t)):
            self.kind = "nan_mismatch"
        elif self.differs and (math.isinf(r) or math.isinf(t)):
            self.kind = "inf_mismatch"
        self.is_left_out = self.kind is not None
        self.d = t - r if self.differs and not self.is_left_out else 0.0
        if self.differs and self.kind is None:
            if ref.is_float and test.is_float and r == 0 == t:
                self.kind = "zero_sign"
            elif ref.is_saturated(r_bits, True) != test.is_saturated(t_bits, True):
                self.kind = "saturation_mismatch"


    def rounds(self, ref, test):
        side, bits, floats, value = (test, self.bits[1], ref, self.r) if ref.is_float else (ref, self.bits[0], test, self.t)
        if not side.scales:
            return False
        channel, code = side.channel(self.index), integer_value(side.dtype, bits)
        return is_dequantised(floats.dtype, code, side.zero_points[channel], side.scales[channel], value)


class Pair:
    def __init__(self, case):
        self.case, self.shape = case, case["shape"]
        self.is_mixed = case["ref"]["dtype"] != case["test"]["dtype"]
        self.ref, self.test = (Side(case[s], self.shape, self.is_mixed) for s in ("ref", "test"))
        self.is_integer = not self.is_mixed and not self.ref.is_float
        self.samples = []
        for place, ref, test in case["samples"]:
            self.samples.append([Element((*place, i), self.ref, self.test, r, t, self.is_mixed)
                                 for i, (r, t) in enumerate(zip(ref, test))])  # fmt: skip
        self.unequal = [s for s in self.samples if any(e.differs for e in s)]
        self.counted = self.samples if self.is_mixed else self.unequal  # by sections 7 and 8
        self.all = [e for s in self.samples for e in s]
        self.differing = [e for e in self.all if e.differs]
        self.measured = [e for e in self.differing if not e.is_left_out]

    def ulp_type(self):
        """Sections 5 and 12. Of two types of one width it is the one with fewer fraction bits."""
        sides = [s.dtype for s in (self.ref, self.test) if s.is_float]
        return min(sides, key=lambda d: (size_of(d), FLOATS[d][1]))

    def ulps(self, element, dtype):
        r, t = self.ref.real(element.r), self.test.real(element.t)
        return abs(rank(dtype, t) - rank(dtype, r))

    def lsb(self, element):
        r, t = (integer_value(self.ref.dtype, bits) for bits in element.bits)
        return t - r

    def abs_error(self, element):
        return abs(self.ref.unit) * abs(element.d)

    def real_size(self, element):
        return abs(self.ref.real(element.r))

    # section 3
    def bits(self):
        n = len(self.all)
        first = self.differing[0].place if self.differing else None
        return {"n_samples": len(self.samples), "n_samples_differing": len(self.unequal), "n_elems": n,
                "n_dequantised": sum(e.is_rounding for e in self.all),
                "n_differing": len(self.differing), "share": len(self.differing) / n if n else 0.0,
                "first": list(first) if first else None}  # fmt: skip

    # section 4
    def steps(self):
        if not self.is_integer:
            return {}
        steps, n = [self.lsb(e) for e in self.all], len(self.all)
        histogram = [0] * 9
        for d in steps:
            histogram[max(-4, min(4, d)) + 4] += 1
        return {"lsb_histogram": histogram, "max_lsb": max(map(abs, steps), default=0),
                "mean_lsb": float(sum(map(abs, steps))) / n if n else 0.0,
                "signed_mean_lsb": float(sum(steps)) / n if n else 0.0}  # fmt: skip

    # section 5
    def ulp(self):
        out = {}
        if not self.is_integer:
            out["max_ulp"] = max((self.ulps(e, self.ulp_type()) for e in self.measured), default=0)
        if self.case.get("ulp_in"):
            out["max_ulp_in"] = max((self.ulps(e, self.case["ulp_in"]) for e in self.measured), default=0)
        return out

    # section 6
    def error(self):
        sums, unit = {key: Sum() for key in ("abs", "rel", "square")}, abs(self.ref.unit)
        absolute, relative, n_undefined = [], [], 0
        for sample in self.samples:
            terms = {key: [0.0] * len(sample) for key in sums}
            for i, e in enumerate(sample):
                if e.is_left_out:
                    continue
                absolute.append(abs(e.d))
                terms["abs"][i], terms["square"][i] = abs(e.d), e.d * e.d
                if e.d != 0 and e.r == 0:
                    n_undefined += 1
                    continue
                relative.append(divide(abs(e.d), abs(e.r)) if e.d != 0 else 0.0)
                terms["rel"][i] = relative[-1]
            for key, total in sums.items():
                add_sample(total, terms[key])
        n, n_rel = len(absolute), len(relative)
        equal_nans = sum(not e.differs and math.isnan(e.r) for s in self.counted for e in s)
        if self.all and n <= equal_nans:
            keys = [f"{kind}.{key}" for kind in ("abs", "rel") for key in ("max", "mean", "median", "p99")]
            return {**dict.fromkeys([*keys, "rmse"], NAN), "n_rel_undefined": 0}
        return {
            "abs.max": unit * max(absolute, default=0.0), "abs.mean": unit * (sums["abs"].value() / n) if n else 0.0,
            "abs.median": unit * quantile(absolute, 1, 2), "abs.p99": unit * quantile(absolute, 99, 100),
            "rel.max": max(relative, default=0.0), "rel.mean": sums["rel"].value() / n_rel if n_rel else 0.0,
            "rel.median": quantile(relative, 1, 2), "rel.p99": quantile(relative, 99, 100),
            "rmse": unit * root(sums["square"].value() / n) if n else 0.0, "n_rel_undefined": n_undefined,
        }  # fmt: skip

    # section 7
    def signal(self):
        if not self.differing:
            return self.nothing_differs()
        sums, n = {key: Sum() for key in ("rr", "tt", "dd", "rd", "r", "t")}, 0
        for sample in self.counted:
            terms = {key: [0.0] * len(sample) for key in sums}
            for i, e in enumerate(sample):
                if math.isfinite(e.r) and math.isfinite(e.t):
                    n += 1
                    for key, term in zip(sums, (e.r * e.r, e.t * e.t, e.d * e.d, e.r * e.d, e.r, e.t)):
                        terms[key][i] = term
            for key, total in sums.items():
                add_sample(total, terms[key])
        if n == 0:
            return {**dict.fromkeys(["sqnr_db", "cosine", "norm_ratio", "pearson", "gain", "offset"], NAN),
                    "has_gain": 0}  # fmt: skip
        return self.signal_of(n, *(total.value() for total in sums.values()))

    def nothing_differs(self):
        return {"sqnr_db": INF, "cosine": 1.0, "norm_ratio": 1.0, "pearson": 1.0, "has_gain": 1, "gain": 1.0}

    def signal_of(self, n, rr, tt, dd, rd, r, t):
        def keep(value):
            return max(-1.0, min(1.0, value)) if not math.isnan(value) else value

        if dd == 0:
            return self.nothing_differs()
        out = {"sqnr_db": -INF if rr == 0 else 10 * log10(divide(rr, dd))}
        out["cosine"] = float(rr == tt) if rr == 0 or tt == 0 else keep(divide(rr + rd, root(rr) * root(tt)))
        out["norm_ratio"] = (1.0 if tt == 0 else INF) if rr == 0 else root(divide(tt, rr))
        vr = rr - r * r / n if n else 0.0
        vt = tt - t * t / n if n else 0.0
        is_flat_r, is_flat_t = (s < INF and v <= TINY_SHARE * s for v, s in ((vr, rr), (vt, tt)))
        covariance = rr + rd - r * t / n if n else 0.0
        out["pearson"] = (float(is_flat_r and is_flat_t) if is_flat_r or is_flat_t
                          else keep(divide(covariance, root(vr) * root(vt))))  # fmt: skip
        if not is_flat_r:
            gain = divide(covariance, vr)
            out.update(has_gain=1, gain=gain, offset=self.ref.unit * ((t - gain * r) / n))
        return out

    # section 8
    def accounting(self):
        out = {f"n_{kind}": sum(e.kind == kind for e in self.differing)
               for kind in ("nan_mismatch", "nan_payload", "inf_mismatch", "zero_sign", "saturation_mismatch")}
        for name, side, which in (("ref_side", self.ref, 0), ("test_side", self.test, 1)):
            samples = [[(e.bits[which], (e.r, e.t)[which]) for e in s] for s in self.counted]
            out.update({f"{name}.{key}": value for key, value in side.account(samples).items()})
        return out

    # section 10
    def structure(self):
        if not self.differing:
            return {}
        positions = sorted({e.index for e in self.differing})
        out = {"first_index": positions[0], "last_index": positions[-1],
               "stride": math.gcd(*(p - positions[0] for p in positions))}  # fmt: skip
        runs = [len(list(run)) for sample in self.unequal
                for key, run in itertools.groupby(sample, lambda e: (e.differs, e.index // BLOCK)) if key[0]]
        out.update(n_runs=len(runs), longest_run=max(runs))
        axes, inner = [], math.prod(self.shape)
        for length in self.shape:
            inner //= length
            seen = {p // inner % length for p in positions}
            axes.append([len(seen), min(seen), max(seen)] if length <= 65536 else None)
        return {**out, "axes": axes, **self.pattern(positions, axes)}

    def pattern(self, positions, axes):
        n, first, last = math.prod(self.shape), positions[0], positions[-1]
        if len(positions) == 1:
            return {"pattern": "one element"}
        for axis, seen in enumerate(axes):
            if seen and seen[0] == 1 and self.shape[axis] > 1:
                return {"pattern": "one coordinate", "axis": axis}
        permutation = self.permutation()
        if permutation:
            return {"pattern": "permuted axes", "permutation": permutation}
        whole = last - first + 1
        if whole < n and all(sum(e.differs for e in s) == whole for s in self.unequal):
            return {"pattern": "range"}
        if math.gcd(*(p - first for p in positions)) > 1:
            return {"pattern": "stride"}
        if first >= 16 and first & first - 1 == 0 and last >= n - n // 16:
            return {"pattern": "from 2^k on"}
        return {"pattern": "everywhere" if 2 * len(self.differing) > len(self.all) else "scattered"}

    def permutation(self):
        """The first in lexicographic order by which the first sample that differs comes out."""
        ref, test = ([e.bits[side] for e in self.unequal[0]] for side in (0, 1))
        strides = [math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        if self.is_mixed:
            return None
        for permutation in itertools.permutations(range(len(self.shape))):
            lengths = [range(self.shape[axis]) for axis in permutation]
            moved = itertools.product(*lengths)
            if all(t == ref[sum(c * strides[a] for c, a in zip(at, permutation))] for t, at in zip(test, moved)):
                return list(permutation)
        return None

    # section 11
    def worst(self):
        def badness(e):
            return INF if e.kind in ("nan_mismatch", "inf_mismatch") else self.abs_error(e)

        def key(e):
            return (e.kind not in ("nan_mismatch", "inf_mismatch"), -badness(e), e.place)

        listed = (e for e in self.differing if e.kind != "nan_payload")
        return [[*e.place, badness(e), self.ref.stored(e.bits[0]), self.test.stored(e.bits[1]), self.ref.real(e.r),
                 self.test.real(e.t)]
                for e in sorted(listed, key=key)[: self.case["n_worst"]]]  # fmt: skip

    def least_rtol(self, element):
        """The least double that lets one element pass alone."""
        size, limit = self.abs_error(element), self.real_size(element)
        if size == 0 or limit == 0:
            return 0.0 if size == 0 else INF
        low, high = 0, bits_of(INF)  # of the doubles; low fails, high passes
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if from_bits(middle) * limit >= size else (middle, high)
        return from_bits(high)

    def tolerance(self, found):
        if any(e.kind in ("nan_mismatch", "inf_mismatch") for e in self.differing):
            return {"is_possible": 0}
        out = {"is_possible": 1, "atol": max(map(self.abs_error, self.measured), default=0.0),
               "rtol": max(map(self.least_rtol, self.measured), default=0.0)}  # fmt: skip
        return {**out, **({"lsb": found["max_lsb"]} if self.is_integer else {"ulp": found["max_ulp"]})}

    # section 15
    def fails(self, e):
        gate = self.case["gate"]
        if not e.differs:
            return False
        if gate.get("bitwise") or e.kind in ("nan_mismatch", "inf_mismatch"):
            return True
        if e.kind == "nan_payload":
            return False
        if "lsb" in gate and self.is_integer and abs(self.lsb(e)) > gate["lsb"]:
            return True
        if "ulp" in gate and not self.is_integer and self.ulps(e, self.ulp_type()) > gate["ulp"]:
            return True
        if "atol" in gate:
            return not self.abs_error(e) <= gate["atol"] + gate["rtol"] * self.real_size(e)
        return False

    def signal_of_all(self):
        """That of the probe with the lowest SQNR, of those that differ; the first of equals."""
        probes = sorted({place[0] for place, _, _ in self.case["samples"]})
        alone = [Pair({**self.case, "samples": [s for s in self.case["samples"] if s[0][0] == p]}) for p in probes]
        found = [pair.signal() for pair in alone if pair.differing]
        return min(found, key=lambda s: -INF if math.isnan(s["sqnr_db"]) else s["sqnr_db"]) if found else self.signal()

    def expected(self):
        out = {**self.bits(), **self.steps(), **self.ulp(), **self.error(), **self.signal(), **self.accounting()}
        out["n_failing"] = sum(map(self.fails, self.all))
        out["structure"], out["worst"] = self.structure(), self.worst()
        out["tolerance"] = self.tolerance(out)
        return out
