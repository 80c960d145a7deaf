"""Runs npudiff for tools/studies/score: inputs of a seed, captures of a few devices at once, and each capture explained alone."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import h5py
import numpy as np

from score_faults import Edge, fill_shares

NPUDIFF = os.environ.get("NPUDIFF", "npudiff")
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden" / "models"
MODELS = {
    "cnn.w8a8": "digits-test.npz", "cnn.w8a16": "digits-test.npz", "vit.w8a8": "digits-test.npz",
    "vit.w8a16": "digits-test.npz", "random-residual.u8": "random-probe.npz", "random-attention.w8a8": "random-probe.npz",
}  # fmt: skip


class Trouble(Exception):
    """npudiff could not do what it was asked; `said` is what itself said of it."""

    def __init__(self, message, said=""):
        super().__init__(message)
        self.said = said or message


def npudiff(*arguments, codes=(0,)):
    done = subprocess.run([NPUDIFF, *map(str, arguments)], capture_output=True, text=True, timeout=1800)
    if done.returncode not in codes:
        said = done.stderr.strip()[:500]
        raise Trouble(f"npudiff {' '.join(map(str, arguments))}: exit code {done.returncode}: {said}", said)
    return done.stdout


def model_path(model):
    return GOLDEN / f"{model}.onnx"


def generator(seed, *path):
    """A generator of its own for each name, so that nothing depends on the order of work."""
    words = [int.from_bytes(p.encode(), "little") % (1 << 63) if isinstance(p, str) else p for p in path]
    return np.random.default_rng([seed, *words])


def write_inputs(path, seed, model, name, n_samples):
    """`injection-K`: samples of the model's own data. `healthy-K`: these, or others of the same kind: random images for the
    random networks, uniform ones now and then for the digits."""
    rng = generator(seed, model, name)
    images = np.load(GOLDEN / MODELS[model])["image"]
    chosen = images[rng.choice(len(images), n_samples, replace=n_samples > len(images))]
    if name.startswith("healthy"):
        if MODELS[model] == "random-probe.npz":
            chosen = rng.normal(size=chosen.shape).astype(np.float32)
        elif rng.random() < 0.25:
            chosen = rng.uniform(size=chosen.shape).astype(np.float32)
    np.savez(path, image=chosen)


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


class Capture:
    """What the study reads in a capture: codes in graph order and the truth."""

    def __init__(self, path):
        self.path = path
        with h5py.File(path, "r") as file:
            self.uri = text(file["device"].attrs["uri"])
            self.status = text(file.attrs["status"])
            self.edges = [text(n) for n in file["edges/name"][:]]
            self.op_types = [text(n) for n in file["edges/op_types"][:]]
            self.is_output = file["edges/is_model_output"][:].astype(bool)
            outputs = file["probes/score/outputs"]
            self.codes = [outputs[n.replace("%", "%25").replace("/", "%2F")][()] for n in self.edges]
            self.zero_points = file["edges/zero_point"][:]
            self.faults = self.truth(file["truth"]) if "truth" in file else []

    @staticmethod
    def truth(group):
        """[(unit, fault word, codes changed)] of the faults that changed a code, in graph order."""

        def lines(name):
            return [line for line in text(group.attrs[name]).split("\n") if line]

        units, kinds, changed = lines("faulty"), lines("kinds"), lines("n_changed")
        if not len(units) == len(kinds) == len(changed):
            raise Trouble(f"/truth has {len(units)} units, {len(kinds)} kinds and {len(changed)} counts")
        return [(u, k, int(c)) for u, k, c in zip(units, kinds, changed) if int(c) > 0]

    def network(self):
        # Of operators that are joined to one unit the first one says what it is.
        rows = zip(self.edges, [o.split("+")[0] for o in self.op_types], self.codes, self.is_output)
        return fill_shares([Edge(n, o, c.shape[1:], bool(out), c) for n, o, c, out in rows if o != "input"])


# ---- one capture explained ----

NOTED = {"fused": "fusion", "noise": "flips"}  # layers that follow known arithmetic, in a way that is told


def explain(model, capture):
    """By npudiff explain from this capture alone: {unit: kind} of the layers that it names, in graph order: those that are
    faulty or unexplained, and those that it says are fused or change from run to run, which are no faults. And where codes
    begin to differ from the exact units at all."""
    report = npudiff("explain", "--quantised", model_path(model), capture, "--threads", "1", "--json", codes=(0, 1, 4))
    device = json.loads(report)["devices"][0]
    named = {f["layer"]: f.get("kind") or "" for f in device["faulty"] + device["unexplained"]}
    named |= {u["name"]: NOTED[u["why_follows"]] for u in device["layers"] if u["why_follows"] in NOTED}
    return {u["name"]: named[u["name"]] for u in device["layers"] if u["name"] in named}, device["sources"]


# ---- what others do with the same captures ----


def naive_answers(reference, capture):
    """The unit that distances name: {method: edge or None}."""
    first = first_far = None
    sqnr = []
    for name, a, b, zero in zip(reference.edges, reference.codes, capture.codes, reference.zero_points):
        d = b.astype(np.int64) - a.astype(np.int64)
        if first is None and d.any():
            first = name
        if first_far is None and np.abs(d).max(initial=0) > 1:
            first_far = name
        noise, signal = float((d * d).sum()), float(((a.astype(np.float64) - float(zero)) ** 2).sum())
        # Equal codes have no finite ratio: 120 dB stands for it, more than codes that differ ever reach.
        sqnr.append(min(120.0, 10 * np.log10(signal / noise)) if noise > 0 and signal > 0 else 0.0 if noise > 0 else 120.0)
    drops = -np.diff(np.array([120.0, *sqnr]))
    largest = reference.edges[int(np.argmax(drops))] if drops.max() > 0 else None
    return {"first difference": first, "first beyond 1 LSB": first_far, "largest drop of SQNR": largest}


# ---- a batch: devices with the same inputs ----


@dataclasses.dataclass
class Outcome:
    model: str
    inputs: str
    device: str
    word: str  # of the fault that was asked for; "" when healthy
    repeats: int
    refusal: str = ""  # why the device could not be captured
    faults: list = dataclasses.field(default_factory=list)
    trouble: str = ""  # why explain gave no answer
    named: dict = dataclasses.field(default_factory=dict)  # unit: kind, as explain says
    naive: dict = dataclasses.field(default_factory=dict)

    @property
    def is_effective(self):
        return not self.refusal and bool(self.faults)

    @property
    def first(self):
        return self.faults[0][0] if self.faults else None

    @property
    def is_found(self):
        return not self.trouble and next(iter(self.named), None) == self.first is not None

    @property
    def is_alarm(self):
        return bool(self.trouble or self.named)


def capture_all(folder, model, inputs, devices, repeats):
    """{uri: path}; devices that the emulator refuses are told by (uri, message) beside it. One command when all goes well."""
    common = ["-p", f"score={inputs}", "--repeats", repeats, "-q"]

    def run(folder, some):
        folder.mkdir()
        npudiff("capture", model_path(model), *[f for d in some for f in ("-d", d)], *common, "-o", folder)
        found = {}
        for path in folder.glob("*.h5"):
            with h5py.File(path, "r") as file:
                found[text(file["device"].attrs["uri"])] = path
        missing = set(some) - set(found)
        if missing:
            raise Trouble(f"no capture of {sorted(missing)[0]}")
        return found

    try:
        return run(folder / "all", devices), []
    except Trouble:
        found, refused = {}, []
        for i, device in enumerate(devices):
            try:
                found |= run(folder / str(i), [device])
            except Trouble as trouble:
                refused.append((device, trouble.said))
        return found, refused


def judge(outcome, reference, path, keep):
    """Fills in the outcome of one device; keep: the folder for captures that explain did not get right, or None."""
    capture = Capture(path)
    outcome.faults = capture.faults
    if outcome.word and not outcome.faults:
        return
    outcome.naive = naive_answers(reference, capture)
    try:
        outcome.named, sources = explain(outcome.model, path)
        outcome.naive["first local mismatch"] = sources[0] if sources else None
    except Trouble as trouble:
        outcome.trouble = str(trouble)
    is_right = outcome.is_found if outcome.word else not outcome.is_alarm
    if keep and not is_right:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, keep / f"{outcome.model}-{outcome.inputs}-{path.name}")


def run_batch(model, inputs, devices, seed, n_samples, repeats=1, keep=None):
    """devices: [(fault word, URI)]; their outcomes in this order."""
    outcomes = [Outcome(model, inputs, uri, word, repeats) for word, uri in devices]
    with tempfile.TemporaryDirectory(prefix="score-") as name:
        folder = pathlib.Path(name)
        write_inputs(folder / "inputs.npz", seed, model, inputs, n_samples)
        uris = list(dict.fromkeys(o.device for o in outcomes))
        captures, refused = capture_all(folder, model, folder / "inputs.npz", ["exact", *uris], repeats)
        if "exact" not in captures:
            raise Trouble(refused[0][1])
        refused, reference = dict(refused), Capture(captures["exact"])
        for outcome in outcomes:
            if outcome.device in refused:
                outcome.refusal = refused[outcome.device]
            else:
                judge(outcome, reference, captures[outcome.device], keep)
    return outcomes


def network_of(model, seed, n_samples):
    """The edges of a model, from a capture of the reference."""
    with tempfile.TemporaryDirectory(prefix="score-") as name:
        folder = pathlib.Path(name)
        write_inputs(folder / "inputs.npz", seed, model, "network", n_samples)
        captures, refused = capture_all(folder, model, folder / "inputs.npz", ["exact"], 1)
        if refused:
            raise Trouble(refused[0][1])
        return Capture(captures["exact"]).network()
