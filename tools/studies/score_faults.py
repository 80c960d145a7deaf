"""What is injected: random devices of the emulator, each with one fault, and healthy ones without.

A device is drawn for a network: its edges in graph order with shape, operator and the codes that the reference has there. All
chance comes from the generator that is handed in.

What a device does in most units is its program, and an operator type may have one of its own; a fault is what does not follow.
So that no capture is both healthy and faulty, three things are not drawn. A healthy device has no program of their own for types
of a single unit: `round.Gemm=floor` with one Gemm is `round@logits=floor`. None rounds some types to the nearest over a
background of double rounding: half-even, half-away and float32 are one on data without ties, so that this is a fallback. And no operator types have
a program of their own, or fall back, that are half of the units or more: then it is the others that differ."""

import dataclasses

import numpy as np

BACKGROUND = "round=double:8"
MOVES = {"MaxPool", "Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Concat", "Pad", "Gather"}
ACCUMULATING = {"Conv", "Gemm", "MatMul"}


@dataclasses.dataclass
class Edge:
    name: str
    op_type: str
    shape: tuple  # of one sample, with the batch dimension
    is_output: bool
    codes: np.ndarray  # the reference's, of a few samples
    share: float = 0.0  # of its operator type in the units that compute

    @property
    def size(self):
        return int(np.prod(self.shape))

    @property
    def channels(self):
        """As the emulator counts them: along axis 1 of rank 4 and of convolutions, else along the last one."""
        return self.shape[1] if len(self.shape) == 4 or self.op_type == "Conv" else self.shape[-1]

    @property
    def is_wide(self):
        return self.codes.dtype.itemsize > 1


# ---- one fault; each gives the item's text, or None where the edge does not suit ----


def draw_round(rng, edge):
    program = rng.choice(["floor", "ceil", "to-zero", "half-even", "double:4", "double:5", "stochastic"])
    seed = f":{rng.integers(1 << 30)}" if program == "stochastic" else ""
    return f"round@{edge.name}={program}{seed}"


def draw_fallback(rng, edge):
    return f"fallback={edge.op_type}" if edge.share < 1 / 2 and rng.random() < 0.2 else f"fallback@{edge.name}"


def draw_fuse(rng, edge):
    return None if edge.is_output else f"fuse@{edge.name}"


def draw_zero_point(rng, edge):
    amount = int(rng.choice([1, 2, 3, 5, 8, 20])) * (1 if rng.random() < 0.5 else -1)
    return f"zero-point@{edge.name}={rng.integers(edge.channels)}:{amount}"


def draw_scale(rng, edge):
    """0.1 to 2 % too large or too small."""
    off = 10.0 ** rng.uniform(-3, np.log10(0.02)) * (1 if rng.random() < 0.5 else -1)
    return f"scale@{edge.name}={rng.integers(edge.channels)}:{1 + off:.5f}"


def accumulator_bits(rng, edge):
    """From what few sums reach to what none keeps within."""
    return int(rng.integers(17, 27)) if edge.is_wide else int(rng.integers(10, 18))


def draw_saturate(rng, edge):
    return f"saturate@{edge.name}={accumulator_bits(rng, edge)}" if edge.op_type in ACCUMULATING else None


def draw_wrap(rng, edge):
    return f"wrap@{edge.name}={accumulator_bits(rng, edge)}" if edge.op_type in ACCUMULATING else None


def draw_permute(rng, edge):
    return f"permute@{edge.name}={rng.integers(1 << 30)}" if edge.channels > 1 else None


def draw_flip(rng, edge):
    return f"flip@{edge.name}={10.0 ** rng.uniform(-3, -0.3):.4f},seed={rng.integers(1 << 30)}"


def draw_window(rng, edge):
    count = int(np.ceil(edge.size * 10.0 ** rng.uniform(-2, -0.2)))
    return f"window@{edge.name}={rng.integers(edge.size - count + 1)}:{count}"


def draw_shift(rng, edge):
    return f"shift@{edge.name}={rng.integers(1, min(edge.size, 65))}" if edge.size > 1 else None


def draw_transpose(rng, edge):
    rank = len(edge.shape)
    sides = (edge.shape[1], int(np.prod(edge.shape[2:]))) if rank == 4 else edge.shape[1:]
    return f"transpose@{edge.name}" if rank in (3, 4) and min(sides) > 1 else None


def draw_clamp(rng, edge):
    """One end or both cut off, within the range of the codes."""
    low, high = np.quantile(edge.codes, [rng.uniform(0, 0.2), rng.uniform(0.8, 1)])
    return f"clamp@{edge.name}={int(low)}:{int(high)}" if low < high else None


def draw_cliff(rng, edge):
    return f"cliff@{edge.name}={int(np.quantile(edge.codes, rng.uniform(0.5, 0.98)))}"


def without_number(word):
    return lambda rng, edge: f"{word}@{edge.name}"


FAULTS = {
    "round": draw_round, "fallback": draw_fallback, "fuse": draw_fuse, "stale": without_number("stale"),
    "zero-point": draw_zero_point, "scale": draw_scale, "saturate": draw_saturate, "wrap": draw_wrap,
    "permute": draw_permute, "flip": draw_flip, "window": draw_window, "zero": without_number("zero"),
    "shift": draw_shift, "transpose": draw_transpose, "clamp": draw_clamp, "cliff": draw_cliff,
}  # fmt: skip
REPEATED = {"flip"}  # what only a second run can tell from an error of one step

# How explain may name what the emulator did. Rounding to the nearest over double rounding is what fallback to floats does.
NAMES = {
    "round": {"rounding", "stochastic-rounding", "fallback"}, "fallback": {"fallback", "rounding"}, "fuse": {"fusion"}, "stale": {"stale"},
    "zero-point": {"channel-zero-point", "zero-point"}, "scale": {"channel-scale", "scale"},
    "saturate": {"accumulator-saturation"}, "wrap": {"accumulator-wrap"}, "permute": {"channel-permutation"},
    "flip": {"flips"}, "window": {"unwritten-window"}, "zero": {"all-zero"}, "shift": {"shifted"},
    "transpose": {"axis-permutation"}, "clamp": {"saturation"}, "cliff": {"hard-cliff"},
}  # fmt: skip


def is_named(word, name):
    return name in NAMES[word] or name == word


def injection(rng, word, edges, refused):
    """The URI of a device with one fault of this kind, at an edge that suits. refused: pairs of word and operator that the
    emulator does not make."""
    for _ in range(200):
        edge = edges[rng.integers(len(edges))]
        item = FAULTS[word](rng, edge) if (word, edge.op_type) not in refused else None
        if item is not None:
            return f"emu:{BACKGROUND},{item}", edge.op_type
    return None


def healthy(rng, edges):
    """The URI of a device without a fault: one program everywhere, or another one for an operator type or two."""
    plain = [BACKGROUND, BACKGROUND, "round=half-even", "round=half-up", "round=floor"]
    choice = rng.integers(8)
    if choice < len(plain):
        return f"emu:{plain[choice]}"
    computing = [e.op_type for e in edges if e.op_type not in MOVES]
    op_types = sorted(o for o in set(computing) if 1 < computing.count(o) < len(computing) / 2)
    background, programs = [(BACKGROUND, ["floor", "ceil", "to-zero"]), ("round=half-even", ["floor", "ceil", "half-away", "half-up"]),
                            ("round=floor", ["ceil", "double:8"])][rng.integers(3)]  # fmt: skip
    chosen = [str(o) for o in rng.permutation(op_types)[: rng.integers(1, 3)]]
    if sum(computing.count(o) for o in chosen) >= len(computing) / 2:
        chosen.pop()
    return "emu:" + ",".join([background, *(f"round.{o}={rng.choice(programs)}" for o in chosen)])


def fill_shares(edges):
    """How common each operator type is."""
    computing = [e.op_type for e in edges if e.op_type not in MOVES]
    for edge in edges:
        edge.share = computing.count(edge.op_type) / len(computing)
    return edges
