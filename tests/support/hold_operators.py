"""Holds the evaluation of operators (devices `exact` and `float64`) against ONNX Runtime's CPU provider without optimisation,
value by value."""
import collections
import pathlib
import subprocess
import warnings

import h5py
import numpy as np

import onnx_write as ow
import operator_cases as oc

warnings.filterwarnings("ignore", category=RuntimeWarning)

# How far a result may be from the exact value and still be right: so many units in the last place of the value, or of the
# largest of the tensor where an operator adds up. Chosen: a few operations of a library function round, and so do sums.
ULPS, ULPS_OF_SUMS = 8, 64
ULP = {np.float32: 2.0 ** -23, np.float16: 2.0 ** -10}
# ONNX Runtime calculates these from a number near 1, or near the input, from which it subtracts another: exp(x) - 1 and so on.
# What it rounds then is that number.
FROM_ONE = {"Celu", "Elu", "Selu", "HardSigmoid", "Sigmoid"}
FROM_INPUT = {"Gelu", "BiasGelu", "FastGelu", "QuickGelu", "HardSwish", "Mish"}
# Cast to a narrower float: it rounds there, the reference keeps the digits.
NARROW_CAST = {b"\x18\x0a": 2.0 ** -11, b"\x18\x10": 2.0 ** -8}


def noise_of(chain, y, unit):
    """How far the values y of a chain may be off, y's own unit in the last place being `unit` times y."""
    case, size = chain.case, np.abs(y)
    finite = np.where(np.isfinite(size), size, 0)
    noise = ULPS * unit * size
    if oc.OPERATORS[case.domain, case.op_type].function not in oc.ELEMENTWISE or case.op_type in ("Sum", "Mean"):
        noise = np.full(y.shape, ULPS_OF_SUMS * unit * finite.max(initial=0))
    if case.op_type in FROM_ONE:
        noise = noise + ULPS * unit
    if case.op_type in FROM_INPUT:
        largest = max(np.abs(np.where(np.isfinite(x), x, 0)).max() for x in chain.reals())
        noise = noise + ULPS * unit * largest
    if case.op_type == "LRN":
        noise = noise + noise_of_lrn(chain, finite, unit)
    narrow = [n for end, n in NARROW_CAST.items() if case.op_type == "Cast" and end in case.attributes]
    return noise + narrow[0] * size if narrow else noise


def noise_of_lrn(chain, size, unit):
    """ONNX Runtime adds the next square to a running sum along the channels and takes the last one away. What it rounds has the
    size of the largest square, and the quotient has the sum below it, 1 or more; alpha / size is 0.3 at most in the cases. Where
    nothing is left of the sum (squares of 1e18, of which it makes infinities) nobody is held to it."""
    largest = max(np.abs(np.where(np.isfinite(x), x, 0)).max() for x in chain.reals())
    relative = ULPS * unit * 0.3 * largest**2
    return size * relative if relative < 1 else np.full(size.shape, np.inf)


QUANTISED = [np.uint8, np.int8, np.uint16, np.int16]
FLOATS = [np.float32, np.float16]


class Count:
    """Of one operator and type. near: one code off, where the value lies next to a tie. refused: chains that a side does not
    run, with the reason."""

    def __init__(self):
        self.values = self.near = self.wrong = self.nan = self.largest = 0
        self.chains, self.refused, self.examples = 0, [], []


class Failed(Exception):
    pass


class Bench:
    def __init__(self, npudiff, folder):
        self.npudiff, self.folder, self.n_runs = npudiff, pathlib.Path(folder), 0

    def capture(self, model, feeds, devices):
        """{device: {tensor: array}} of one sample."""
        self.n_runs += 1
        place = self.folder / f"run{self.n_runs}"
        place.mkdir()
        (place / "m.onnx").write_bytes(model)
        np.savez(place / "in.npz", **{k: v for k, v in feeds.items()})
        command = [self.npudiff, "capture", place / "m.onnx", "-p", f"data={place / 'in.npz'}", "-o", place / "out", "-q",
                   "--deflate", "0", "--allow-nonfinite", "-t", "outputs"]
        for device in devices:
            command += ["-d", device]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            raise Failed(done.stderr.strip())
        found = {}
        for device in devices:
            with h5py.File(place / "out" / f"{device}.h5") as file:
                group = file["probes/data/outputs"]
                found[device] = {k.replace("%2F", "/"): group[k][()].reshape(-1) for k in group}
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        place.rmdir()
        return found


def model_of(chains, tails):
    """One model of all chains, and its inputs. tails: {chain: (nodes, constants, outputs)} behind the operators."""
    nodes, constants, inputs, outputs, feeds = [], {}, [], [], {}
    for chain in chains:
        more, more_constants, made = tails[chain]
        nodes += chain.nodes + more
        constants.update(chain.constants)
        constants.update(more_constants)
        feeds.update(chain.feeds)
        inputs += [ow.value_info(k, ow.onnx_type(v.dtype), v.shape) for k, v in chain.feeds.items()]
        outputs += [ow.value_info(name, kind, None) for name, kind in made]
    if not feeds: # a model has an input
        feeds["unused"] = np.zeros(1, np.float32)
        inputs.append(ow.value_info("unused", ow.FLOAT, (1,)))
        nodes.append(ow.node("Identity", ["unused"], ["unused.y"]))
        outputs.append(ow.value_info("unused.y", ow.FLOAT, (1,)))
    return ow.model(nodes, inputs, outputs, constants, chains[0].case.opset), feeds


def run(bench, chains, tails, devices, counts):
    """{chain: {device: {tensor: values}}} of all chains that all devices run; the others are noted as refused."""
    if not chains:
        return {}
    try:
        made = bench.capture(*model_of(chains, tails), devices)
    except Failed as failure:
        if len(chains) == 1:
            counts[chains[0].key].refused.append((devices[-1], chains[0].case.text, str(failure)))
            return {}
        half = len(chains) // 2
        return {**run(bench, chains[:half], tails, devices, counts), **run(bench, chains[half:], tails, devices, counts)}
    return {chain: {device: made[device] for device in devices} for chain in chains}


# ---- codes ----

def output_encoding(rng, y, dtype):
    """Of a range that the values fill, or leave, or hardly use; or a power of two, for ties."""
    finite = np.abs(y[np.isfinite(y)].astype(np.float64))
    largest = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    _, zero = oc.encoding(rng, dtype)
    info = np.iinfo(dtype)
    room = max(int(info.max) - int(zero), int(zero) - int(info.min))
    scale = largest / room * float(rng.choice([1, 1, 0.25, 16]))
    if rng.integers(3) == 0:
        scale = 2.0 ** np.round(np.log2(scale))
    return float(np.clip(scale, 1e-30, 1e30)), int(zero)


def judge_codes(count, chain, y, ours, theirs, encoding):
    """theirs against ours; y is what ONNX Runtime's operator gives before its QuantizeLinear."""
    y, (scale, zero) = y.astype(np.float64), encoding
    info = np.iinfo(chain.dtype)
    noise = noise_of(chain, y, ULP[np.float32]) + 2.0 ** -20 * scale
    centre = np.where(np.isinf(noise), 0, y)
    low, high = (np.clip(np.rint((centre + side * noise) / scale) + zero, info.min, info.max) for side in (-1, 1))
    is_nan, is_same = np.isnan(y), ours == theirs
    is_near = ~is_same & ~is_nan & (ours >= low) & (ours <= high)
    is_wrong = ~is_same & ~is_near
    count.values += y.size
    count.nan += int(is_nan.sum())
    count.near += int(is_near.sum())
    count.wrong += int(is_wrong.sum())
    if is_wrong.any():
        difference = np.where(is_wrong, np.abs(ours.astype(np.int64) - theirs.astype(np.int64)), 0)
        at = int(np.argmax(difference))
        count.examples.append(f"{chain.case.text}: element {at}: y {y[at]:.9g}, {int(ours[at])} is not {int(theirs[at])}; "
                              f"scale {scale:.9g}, zero point {zero}, {chain.encodings}")


def hold_codes(bench, chains, rng, counts):
    tails = {c: ([], {}, c.outputs) for c in chains}
    plain = run(bench, chains, tails, ["cpu"], counts)
    chosen = {}
    for chain in list(plain):
        nodes, constants, outputs, chosen[chain] = [], {}, [], []
        for name, kind in chain.outputs:
            y = plain[chain]["cpu"][name]
            scale, zero = output_encoding(rng, y, chain.dtype)
            more, more_constants, made = chain.quantised(name, kind, 0, scale, zero)
            nodes += more
            constants.update(more_constants)
            outputs.append((made, ow.onnx_type(chain.dtype)))
            chosen[chain].append((made, y, (np.float64(np.float32(scale)), zero)))
        tails[chain] = (nodes, constants, outputs)
    for chain, made in run(bench, list(plain), tails, ["cpu", "exact"], counts).items():
        counts[chain.key].chains += 1
        for name, y, encoding in chosen[chain]:
            judge_codes(counts[chain.key], chain, y, made["exact"][name], made["cpu"][name], encoding)


# ---- floats ----

def judge_floats(count, chain, ours, theirs):
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    limit = float(np.finfo(chain.dtype).max)
    noise = noise_of(chain, ours, ULP[chain.dtype]) + (1e-37 if chain.dtype == np.float32 else 1e-6)
    is_same = (np.abs(ours - theirs) <= noise) | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    is_same |= (np.abs(ours) >= limit * (1 - 2.0 ** -10)) & (np.abs(theirs) >= limit * (1 - 2.0 ** -10)) & (np.sign(ours) == np.sign(theirs))
    if chain.case.op_type == "Sign" and chain.dtype == np.float16: # which has 0 for NaN, and NaN in float32
        is_same |= np.isnan(ours)
    count.values += ours.size
    count.nan += int(np.isnan(theirs).sum())
    count.near += int((is_same & (ours != theirs) & ~np.isnan(ours)).sum())
    count.wrong += int((~is_same).sum())
    if not is_same.all():
        at = int(np.argmin(is_same))
        feeds = {k: v.reshape(-1)[at] if v.size == ours.size else "..." for k, v in chain.feeds.items()}
        count.examples.append(f"{chain.case.text}: element {at} of {feeds}: {ours[at]:.9g} is not {theirs[at]:.9g}")


def hold_floats(bench, chains, counts):
    tails = {c: ([], {}, c.outputs) for c in chains}
    for chain, made in run(bench, chains, tails, ["cpu", "float64"], counts).items():
        counts[chain.key].chains += 1
        for name, _ in chain.outputs:
            judge_floats(counts[chain.key], chain, made["float64"][name], made["cpu"][name])


# ---- everything ----

def chains_of(dtype, rng, wanted, repeats, most):
    """Chains of every case of the wanted operators, by opset. most: of one operator, or None."""
    by_opset, n = collections.defaultdict(list), 0
    for key, operator in oc.with_cases().items():
        cases = [c for c in operator.cases if wanted is None or str(operator) in wanted]
        if most is not None and len(cases) > most:
            cases = [cases[i] for i in sorted(rng.permutation(len(cases))[:most])]
        for case in cases:
            for _ in range(repeats):
                chain = oc.Chain(n, case, dtype, rng)
                chain.key = (str(operator), np.dtype(dtype).name)
                by_opset[case.opset].append(chain)
                n += 1
    return by_opset


def hold(bench, seed, types=(*QUANTISED, *FLOATS), wanted=None, repeats=1, most=None, size=200):
    """{(operator, type): Count}."""
    counts = collections.defaultdict(Count)
    for number, dtype in enumerate(types):
        rng = np.random.default_rng([seed, number])
        for _, chains in sorted(chains_of(dtype, rng, wanted, repeats, most).items()):
            for at in range(0, len(chains), size):
                if np.dtype(dtype).kind in "ui":
                    hold_codes(bench, chains[at:at + size], rng, counts)
                else:
                    hold_floats(bench, chains[at:at + size], counts)
    return counts
