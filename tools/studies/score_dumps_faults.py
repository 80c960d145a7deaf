"""What tools/studies/score_dumps injects: one fault in one tensor of a dump, and the types that dumps have."""

import numpy as np

FLOATS, CODES = ("float32", "float16", "bfloat16"), ("uint8", "uint16")


def bfloat16_bits(values):
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def stored(values, form):
    """As a dump of that type has it: rounded to the nearest once more."""
    with np.errstate(over="ignore"):
        if form == "bfloat16":
            return bfloat16_bits(values)
        if form in CODES:
            return np.clip(np.rint(values), 0, np.iinfo(form).max).astype(form)
        return np.asarray(values, np.float32).astype(form)


def loaded(values, form):
    """What a dump of that type says, as float64."""
    array = stored(values, form)
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64) if form == "bfloat16" else array.astype(np.float64)


# ---- faults: each gives the spoilt values, or None where the tensor does not suit ----
# v: values of the test [samples, ...]; r: of the reference; form: the type; d: the dumps, which a fault may change. A fault that needs
# different values on both sides puts them, unspoilt, into d.sides.


def rows_of(rng, v, least):
    """A view of v as rows of its last axis, and some of them: a range of at least a quarter."""
    rows = v.reshape(-1, v.shape[-1])
    if v.shape[-1] < least or len(rows) // len(v) < 4:
        return None, None
    n = len(rows) // len(v)
    count = int(rng.integers(max(n // 4, 1), n + 1))
    first = int(rng.integers(n - count + 1))
    chosen = np.zeros((len(v), n), bool)
    chosen[:, first : first + count] = True
    return rows, chosen.reshape(-1)


def cut(values, form):
    """Toward zero to the type's numbers."""
    if form == "bfloat16":
        return (np.float32(values).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    near = np.float32(values).astype(np.float16)
    return np.where(np.abs(near.astype(np.float64)) > np.abs(values), np.nextafter(near, np.float16(0)), near).astype(np.float64)


def truncated(rng, name, v, r, form, d, source):
    if form == "bfloat16":
        return None
    if form in CODES:
        step, low = (r.max() - r.min()) / np.iinfo(form).max, r.min()
        d.sides[0][name], d.sides[1][name] = (r - low) / step, (v - low) / step
        return np.floor((source - low) / step)
    return cut(source, "float16" if form == "float32" and rng.random() < 0.5 else "bfloat16")


def truncation(rng, name, v, r, form, d):
    """The reference's values, cut: float32 to half precision or bfloat16, float16 to bfloat16; codes from the floats of the layer."""
    return truncated(rng, name, v, r, form, d, loaded(r, form) if form == "float16" else r)


def truncation_over(rng, name, v, r, form, d):
    """The same of the device's own values, which differ from the reference's already."""
    return truncated(rng, name, v, r, form, d, v)


def cliff(rng, name, v, r, form, d):
    limit = np.quantile(np.abs(v), rng.uniform(0.6, 0.97))
    value = 0.0 if form in CODES or rng.random() < 0.5 else np.inf
    return np.where(np.abs(v) > limit, np.copysign(value, v) if value else 0.0, v)


def saturation(rng, name, v, r, form, d):
    low, high = np.quantile(v, [rng.uniform(0.05, 0.2), rng.uniform(0.8, 0.95)])
    return np.clip(v * rng.uniform(1, 1.3), low, high) if low < high and low != v.min() else None


def wrap(rng, name, v, r, form, d):
    """Codes of 16 bits lose their high byte. Floats stand for whole numbers of which only 8 or 16 bits are kept, with a sign."""
    if form in CODES:
        return np.mod(v, 256) if form == "uint16" else None
    half = 2.0**15 if form == "float32" and rng.random() < 0.5 else 2.0**7
    factor = half * rng.uniform(1.2, 2.5) / np.abs(r).max()
    d.sides[0][name], d.sides[1][name] = np.rint(r * factor), np.rint(v * factor)
    return np.mod(np.rint(v * factor) + half, 2 * half) - half


def periodic(rng, name, v, r, form, d):
    rows, chosen = rows_of(rng, v, 12)
    if rows is None:
        return None
    period = int(rng.integers(2, rows.shape[1] // 3 + 1))
    return np.where(chosen[:, None], rows[:, np.arange(rows.shape[1]) % period], rows).reshape(v.shape)


def constant_rows(rng, name, v, r, form, d):
    rows, chosen = rows_of(rng, v, 8)
    return None if rows is None else np.where(chosen[:, None], rows[:, :1], rows).reshape(v.shape)


def passed_through(rng, name, v, r, form, d):
    """The nearest earlier tensor of the same shape."""
    names = list(d.sides[1])
    others = [n for n in names[: names.index(name)] if d.sides[1][n].shape == v.shape]
    return d.sides[1][others[-1]].copy() if others else None


def stale(rng, name, v, r, form, d):
    return np.roll(v, 1, 0)


def window(rng, name, v, r, form, d):
    y = v.reshape(len(v), -1).copy()
    n = y.shape[1]
    count = max(n // int(rng.integers(2, 17)), 1)
    first = int(rng.integers(n - count + 1))
    garbage = rng.choice(v.reshape(-1), count) if rng.random() < 0.5 else 0
    y[:, first : first + count] = garbage
    return y.reshape(v.shape)


def first_launch(rng, name, v, r, form, d):
    """The first of three runs; the others are what the device computes."""
    d.runs = [dict(d.sides[1]), dict(d.sides[1])]
    return rng.permuted(v.reshape(len(v), -1), axis=1).reshape(v.shape)


def signedness(rng, name, v, r, form, d):
    if form in FLOATS:
        return None
    kind = "int8" if form == "uint8" else "int16"
    d.is_relabelled = (name, kind)
    # Where few codes are beyond the sign bit the other type says the same numbers.
    return v if np.count_nonzero(stored(v, form).view(kind) < 0) >= v.size // 50 else None


def float_label(rng, name, v, r, form, d):
    """Bytes of float32 called int32; of half precision called bfloat16, and the reverse."""
    if form in CODES:
        return None
    if form == "float32":
        d.is_relabelled = (name, "int32")
    elif form == "float16":
        d.is_relabelled, d.maps[1][name] = (name, "uint16"), {"dtype": "bfloat16"}
    else:
        d.is_relabelled, d.maps[1][name] = (name, "float16"), {"dtype": "float16"}
    return v


def relu_left_out(rng, name, v, r, form, d):
    """What a Relu reads, in place of what it gives; the dumps do not have it."""
    names = list(d.sides[1])
    others = [n for n in names[: names.index(name)] if d.sides[1][n].shape == v.shape]
    if form in CODES or not name.endswith("relu") or not others:
        return None
    y = d.sides[1][others[-1]].copy()
    for side in d.sides:
        for other in others:
            del side[other]
    return y


def encoding(rng, name, v, r, form, d):
    """Right codes; the test's file of facts states a wrong scale and a wrong zero point."""
    if form in FLOATS:
        return None
    scale, zero = float(np.float32(rng.uniform(0.001, 0.1))), int(rng.integers(256))
    wrong = float(np.float32(scale * rng.choice([0.25, 0.5, 0.8, 1.25, 2, 4])))
    d.maps[0][name] = {"scale": scale, "zero_point": zero}
    d.maps[1][name] = {"scale": wrong, "zero_point": (zero + int(rng.integers(8, 249))) % 256}
    return v


def axes(rng, name, v, r, form, d):
    """Two axes exchanged, the shape as it was: what another layout's bytes look like."""
    long = [i for i in range(1, v.ndim) if v.shape[i] > 1]
    if len(long) < 2:
        return None
    a, b = (int(i) for i in rng.choice(long, 2, replace=False))
    return np.swapaxes(v, a, b).reshape(v.shape)


def axes_noise(rng, name, v, r, form, d):
    """The same, and one step more or less in 3 of 10 values."""
    y = axes(rng, name, v, r, form, d)
    if y is None:
        return None
    sign = rng.choice([-1, 1], v.shape) * (rng.random(v.shape) < 0.3)
    bits = {"float32": 10, "float16": 10, "bfloat16": 7}
    step = 1 if form in CODES else 2.0 ** (np.floor(np.log2(np.maximum(np.abs(y), 2.0**-14))) - bits[form])
    return y + sign * step


def half_up(rng, name, v, r, form, d):
    """A quantiser whose input the dump holds, with ties in a fifth of it: half to even in the reference, half up in the test."""
    if form in FLOATS:
        return None
    scale = float(np.float32(rng.uniform(0.001, 0.1)))
    x = np.float32(np.float32(scale) * (r + 0.5 * (rng.random(r.shape) < 0.2)))
    steps = np.rint(np.float64(x) / np.float64(np.float32(scale)) * 2) / 2  # what float32 adds is less than 0.005
    for side, tensors in enumerate(d.sides):
        place = list(tensors).index(name)  # the input stands right before what is made of it
        items = list(tensors.items())
        d.sides[side] = dict([*items[:place], (f"{name}/input", x.astype(np.float64)), *items[place:]])
        d.maps[side][name] = {"scale": scale, "zero_point": 0}
    d.types[f"{name}/input"] = "float32"
    d.sides[0][name] = d.sides[1][name] = np.rint(steps)
    return np.floor(steps + 0.5)


def zero_samples(rng, name, v, r, form, d):
    count = int(rng.integers(2, len(v) // 2 + 1))
    y = v.copy()
    y[rng.permutation(len(v))[:count]] = 0
    return y


LABEL, PERMUTED = "label", "permutation"  # of a pair, beside the kinds of diagnoses
FAULTS = {
    "truncation": (truncation, {"truncation", "one-sided"}), "truncation-over": (truncation_over, {"truncation", "one-sided"}),
    "cliff": (cliff, {"hard-cliff"}), "saturation": (saturation, {"saturation"}),
    "wrap": (wrap, {"wrap"}), "periodic-rows": (periodic, {"periodic"}), "constant-rows": (constant_rows, {"constant-lines"}),
    "passed-through": (passed_through, {"passed-through"}), "stale": (stale, {"stale"}), "window": (window, {"unwritten-window"}),
    "first-launch": (first_launch, {"first-launch"}), "signedness": (signedness, {LABEL}), "scale-and-zero": (encoding, {LABEL}),
    "axes": (axes, {"axis-permutation", "other-places", PERMUTED}), "axes-and-noise": (axes_noise, {"axis-permutation", "other-places", PERMUTED}),
    "float-label": (float_label, {LABEL, "wrong-type"}), "relu-left-out": (relu_left_out, {"activation-left-out"}),
    "half-up": (half_up, {"ties"}), "zero-samples": (zero_samples, {"all-zero", "constant"}),
}  # fmt: skip
NOTES = {"ties", "one-sided"}  # arithmetic, which compare names beside the faults
FROM_FLOATS = {"truncation", "truncation-over"}  # codes are made of the float models
SMALL = {*FROM_FLOATS, "signedness", "scale-and-zero", "half-up"}
