"""Output folders of qnn-net-run, generated: good ones of many forms, and one defect in each.

A good folder is described by three things: a context's JSON, a prepared folder's npudiff.json, or a model. All chance comes from
the generator that is handed in. Nothing here is npudiff's: what a folder must be read as is kept beside it as arrays."""

import dataclasses
import json
import pathlib
import shutil
import struct
import unicodedata

import numpy as np

QNN = {"uint8": ("UFIXED_POINT_8", 8, 0), "int8": ("SFIXED_POINT_8", 8, -128), "uint16": ("UFIXED_POINT_16", 16, 0),
       "int16": ("SFIXED_POINT_16", 16, -32768), "uint4": ("UFIXED_POINT_4", 4, 0)}
PLAIN = {"float32": "FLOAT_32", "bool": "BOOL_8"}
WORDS = ["conv", "relu", "logits", "stem", "größe", "Ω", "層", "a b", "x:0", "1034", "pool-1", "out.put", "é", "softmax"]
BUILD = "v2.51.0.260929181845"


# ---- a tensor ----

@dataclasses.dataclass
class Tensor:
    name: str      # in the capture
    file: str      # of its files
    dtype: str     # of the native file
    shape: tuple
    scale: float   # 0: none
    zero_point: int
    codes: np.ndarray  # [sample, dims...], or the floats
    sample_bytes: int = 0

    @property
    def stored(self):
        return "uint8" if self.dtype in ("uint4", "bool") else self.dtype

    def native(self, sample):
        return self.codes[sample].astype(self.stored).tobytes()

    def reals(self, sample):
        if self.dtype == "float32":
            return self.codes[sample]
        if not self.scale:
            return self.codes[sample].astype(np.float32)
        return ((self.codes[sample].astype(np.float64) - self.zero_point) * np.float64(np.float32(self.scale))).astype(np.float32)


def sanitise(name):
    clean = "".join(c if c.isascii() and c.isalnum() else "_" * len(c.encode()) for c in name)
    return "_" + clean if clean[:1].isdigit() else clean


def random_tensor(rng, name, n, dtypes, file=None):
    dtype = str(rng.choice(dtypes))
    shape = tuple(int(d) for d in rng.integers(1, 7, rng.integers(0, 5)))
    if dtype == "float32":
        return Tensor(name, file or name, dtype, shape, 0, 0, rng.standard_normal((n, *shape)).astype(np.float32))
    if dtype == "bool":
        return Tensor(name, file or name, dtype, shape, 0, 0, rng.integers(0, 2, (n, *shape)))
    _, bits, low = QNN[dtype]
    zero = int(rng.integers(low, low + 2 ** bits))
    scale = float(np.float32(10.0 ** rng.uniform(-4, 1)))
    return Tensor(name, file or name, dtype, shape, scale, zero, rng.integers(low, low + 2 ** bits, (n, *shape)))


def random_names(rng, n):
    names = []
    while len(names) < n:
        name = unicodedata.normalize("NFC", "_".join(rng.choice(WORDS, rng.integers(1, 4))) + str(rng.integers(0, 100)))
        if name not in names and sanitise(name) not in map(sanitise, names):
            names.append(name)
    return names


# ---- a model: a chain of Relu whose edges have the names ----

def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def onnx_model(names, shape):
    """x -> names[0] -> names[1] ..., each float32 of that shape."""
    dims = b"".join(field(1, field(1, d)) for d in shape)
    info = lambda name: field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))
    nodes = b"".join(field(1, field(1, a) + field(2, b) + field(3, f"node{i}") + field(4, "Relu"))
                     for i, (a, b) in enumerate(zip(["x"] + names, names)))
    graph = nodes + field(2, "g") + field(11, info("x")) + field(12, info(names[-1]))
    graph += b"".join(field(13, info(name)) for name in names[:-1])
    return field(1, 8) + field(8, field(1, "") + field(2, 17)) + field(7, graph)


# ---- a folder ----

class Folder:
    """mode: "context", "prepared" or "model"."""

    def __init__(self, top, rng, mode=None, **wanted):
        self.top, self.rng = pathlib.Path(top), rng
        self.mode = mode or str(rng.choice(["context", "context", "prepared", "model"]))
        self.n = wanted.get("n") or int(rng.integers(2, 6))
        self.style = wanted.get("style") or str(rng.choice(["native", "float", "both"]))
        self.arguments = []
        self.graph = f"graph {rng.integers(100)}" if self.mode == "context" and rng.random() < 0.2 else None
        self.has_metadata = wanted.get("metadata", rng.random() < 0.7)
        self.has_sidecars = wanted.get("sidecars", self.mode == "context" and rng.random() < 0.3)
        self.is_older = rng.random() < 0.3
        n_tensors = int(rng.integers(3, 7))
        names = wanted.get("names") or random_names(rng, n_tensors)
        dtypes = wanted.get("dtypes") or ["uint8", "uint8", "int8", "uint16", "int16", "float32", "uint4", "bool"]
        if self.mode == "model":
            self.style, dtypes = "float", ["float32"]
        self.tensors = [random_tensor(rng, name, self.n, dtypes, None if self.mode == "context" else sanitise(name))
                        for name in names]
        if self.mode == "model":
            shape = wanted.get("shape") or tuple(int(d) for d in rng.integers(1, 9, 2))
            for t in self.tensors:
                t.shape, t.codes = shape, rng.standard_normal((self.n, *shape)).astype(np.float32)
        self.inputs = [random_tensor(rng, "in put"[:2] + str(i), self.n, ["uint8", "float32"])
                       for i in range(wanted.get("n_inputs") or int(rng.integers(1, 3)))]
        self.write(wanted.get("has_list", rng.random() < 0.5))

    # -- writing --

    def write(self, has_list):
        self.output = self.top / "output" if self.mode == "prepared" else self.top / "out put"
        self.results = self.output / self.graph if self.graph else self.output
        self.results.mkdir(parents=True)
        for i in range(self.n):
            self.result(i).mkdir()
            for t in self.tensors:
                self.write_tensor(t, i)
        if self.has_metadata:
            self.write_metadata(self.n)
        log = "qnn-profiling-data.log" if self.is_older else "qnn-profiling-data_0.log"
        (self.output / log).write_bytes(b"\x00\x01binary")
        (self.output / "run.log").write_text(f"[ INFO ] Backend build version: {BUILD}\nFinished Executing Graphs\n")
        (self.output / "profile.csv").write_text("Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,"
                                                 "Event Identifier\n1,EXECUTE,5,US,BACKEND,ROOT,QNN (execute) time\n")
        if self.mode == "context":
            self.write_context(self.context())
        elif self.mode == "prepared":
            self.write_prepared()
        else:
            self.write_model([t.name for t in self.tensors], self.tensors[0].shape)
        if has_list and self.mode == "context":
            self.write_list(self.lines())

    def result(self, i):
        return self.results / f"Result_{i}"

    def has_native(self, t):
        return t.dtype != "float32" and self.style != "float"

    def files(self, t):
        """Suffixes of the tensor's files."""
        if t.dtype == "float32":
            return [".raw"]
        found = [] if self.style == "native" else [".raw"]
        return found + (["_native.raw"] if self.has_native(t) else [])

    def write_tensor(self, t, i):
        for suffix in self.files(t):
            data = t.native(i) if suffix == "_native.raw" else t.reals(i).tobytes()
            (self.result(i) / f"{t.file}{suffix}").write_bytes(data)
        if self.has_sidecars and self.has_native(t) and t.scale:
            self.sidecar(t, i).write_text(json.dumps({"quantizeParams": self.quantise(t), "unknown": 1}))

    def sidecar(self, t, i):
        return self.result(i) / f"{t.file}_native.raw.json"

    @property
    def metadata(self):
        return self.output / "execution_metadata.yaml"

    def write_metadata(self, n):
        self.metadata.write_text(f"inferences_completed: {n}\ngraph_name: g\nunknown:\n  - {{a: 1}}\n")

    def quantise(self, t):
        key = "scaleOffsetEncoding" if self.is_older else "scaleOffset"
        return {"definition": "QNN_DEFINITION_DEFINED", "quantizationEncoding": "QNN_QUANTIZATION_ENCODING_SCALE_OFFSET",
                key: {"scale": t.scale, "offset": -t.zero_point}}

    def describe(self, t):
        qnn = PLAIN.get(t.dtype) or QNN[t.dtype][0]
        info = {"name": t.file, "id": 1, "dimensions": list(t.shape), "dataType": f"QNN_DATATYPE_{qnn}", "extra": None}
        if t.scale:
            info["quantizeParams"] = self.quantise(t)
        return {"info": info}

    def context(self):
        graphs = [{"info": {"graphName": self.graph or "g", "graphInputs": [self.describe(t) for t in self.inputs],
                            "graphOutputs": [self.describe(t) for t in self.tensors]}}]
        return {"info": {"backendId": 6, "buildId": BUILD, "graphs": graphs, "hwInfoBlobVersion": {}}}

    @property
    def context_path(self):
        return self.top / "context.json"

    def write_context(self, root):
        self.context_path.write_text(json.dumps(root, ensure_ascii=bool(self.rng.random() < 0.5)))
        if "--context-json" not in self.arguments:
            self.arguments += ["--context-json", str(self.context_path)]

    def write_model(self, names, shape):
        (self.top / "model.onnx").write_bytes(onnx_model(names, shape))
        if "--model" not in self.arguments:
            self.arguments += ["--model", str(self.top / "model.onnx")]

    def lines(self):
        (self.output / "in").mkdir(exist_ok=True)
        for i in range(self.n):
            for t in self.inputs:
                (self.output / "in" / f"{t.file}_{i}.raw").write_bytes(t.native(i))
        return ["# header", *(" ".join(f"{t.file}:=in/{t.file}_{i}.raw" for t in self.inputs) for i in range(self.n)), ""]

    @property
    def list_path(self):
        return (self.top if self.mode == "prepared" else self.output) / "input_list.txt"

    def write_list(self, lines):
        self.list_path.write_text("\n".join(lines) + "\n")

    @property
    def manifest_path(self):
        return self.top / "npudiff.json"

    def manifest(self):
        def tensor(t):
            size = int(np.prod(t.shape, dtype=int)) * np.dtype(t.stored).itemsize
            return {"name": t.name, "onnx_name": t.name, "context_name": t.file, "dtype": t.dtype, "shape": list(t.shape),
                    "layout": "onnx", "scale": [t.scale] if t.scale else None,
                    "zero_point": [t.zero_point] if t.scale else None, "axis": None, "size_bytes": size}
        results = [{"probe": 0, "sample": i, "inputs": [{"file": f"inputs/0_p/{i:06}/{t.file}.raw"} for t in self.inputs]}
                   for i in range(self.n)]
        return {"npudiff_prepare": 1, "npudiff": "0.1.0", "model": {"file": "m.onnx", "sha256": "00" * 32, "edges": "all"},
                "chipset": {"sm": "SM8650", "soc_model": 57, "arch": "v75"}, "runtime": {"id": "qairt-2.51.0", "sdk": BUILD[1:]},
                "context": {}, "inputs": [tensor(t) for t in self.inputs], "outputs": [tensor(t) for t in self.tensors],
                "fed": [], "probes": [{"name": "p", "source": "p", "n_samples": self.n, "labels": None}], "results": results}

    def write_manifest(self, root):
        self.manifest_path.write_text(json.dumps(root))

    def write_prepared(self):
        self.write_manifest(self.manifest())
        self.write_list([" ".join(f"{t.file}:=inputs/0_p/{i:06}/{t.file}.raw" for t in self.inputs) for i in range(self.n)])
        for i in range(self.n):
            folder = self.top / "inputs" / "0_p" / f"{i:06}"
            folder.mkdir(parents=True)
            for t in self.inputs:
                (folder / f"{t.file}.raw").write_bytes(t.native(i))
        (self.top / "exit_code").write_text("0\n")
        (self.top / "stdout.txt").write_text("Finished Executing Graphs\n")

    @property
    def path(self):
        return self.top if self.mode == "prepared" else self.output

    def expected(self, n=None):
        """{name: array} of the capture: codes where there are native files."""
        n = self.n if n is None else n
        found = {}
        for t in self.tensors:
            is_as_it_is = self.has_native(t) or t.dtype == "float32" or t.scale > 0 # floats that are reals of codes: codes
            whole = t.codes.astype(t.stored) if is_as_it_is else np.stack([t.reals(i) for i in range(self.n)])
            found[t.name] = whole[:n]
        return found


# ---- one defect ----

@dataclasses.dataclass
class Named:
    """What npudiff must say: its exit code, the error's id, and texts in what it prints; how many samples are left."""
    code: int
    error: int
    texts: list
    n_samples: int = None


KINDS = {}


def kind(*modes, **wanted):
    def register(function):
        KINDS[function.__name__] = (modes, wanted, function)
        return function
    return register


def pick(folder, suffix=None, need=None, first=1):
    """A tensor, one of its files and a result: a file that is there."""
    usable = [(t, s) for t in folder.tensors for s in folder.files(t)
              if suffix in (None, s) and (need is None or need(t)) and np.prod(t.shape, dtype=int) > 0]
    t, s = usable[folder.rng.integers(len(usable))]
    i = int(folder.rng.integers(first, folder.n))
    return t, i, folder.result(i) / f"{t.file}{s}"


def tail(path):
    return f"{path.parent.name}/{path.name}"


ANY = ("context", "prepared", "model")
QUANTISED = ["uint8", "int8", "uint16", "int16"]


@kind(*ANY)
def missing_file(f):
    _, i, path = pick(f)
    path.unlink()
    return Named(2, 1264, [f"Result_{i} has no '{path.name}'"])


@kind(*ANY)
def missing_file_in_the_first_result(f):
    t, _, path = pick(f)
    (f.result(0) / path.name).unlink()
    return Named(2, 1264, [f"has '{path.name}', which Result_0 lacks"])


@kind("context", "prepared", sidecars=False)
def missing_tensor_everywhere(f):
    t = f.tensors[f.rng.integers(len(f.tensors))]
    for i in range(f.n):
        for s in f.files(t):
            (f.result(i) / f"{t.file}{s}").unlink()
    return Named(2, 1264, [f"no file of '{t.file}'"])


@kind(*ANY)
def truncated_file(f):
    t, i, path = pick(f, first=0)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    return Named(2, 1267, [tail(path), f"has {len(data) - 1} bytes", f"takes {len(data)}"])


@kind(*ANY)
def file_that_is_too_long(f):
    t, i, path = pick(f, first=0)
    data = path.read_bytes()
    path.write_bytes(data + b"\x00")
    return Named(2, 1267, [tail(path), f"takes {len(data)}"])


@kind(*ANY)
def empty_file(f):
    _, _, path = pick(f, first=0)
    path.write_bytes(b"")
    return Named(2, 1267, [tail(path), "it is empty"])


@kind(*ANY, style="float")
def file_of_several_samples(f):
    _, _, path = pick(f, first=0)
    path.write_bytes(path.read_bytes() * 3)
    return Named(2, 1267, [tail(path), "may hold 3 samples"])


@kind("context", "prepared", style="native", dtypes=QUANTISED)
def native_file_of_floats(f):
    t, i, path = pick(f, "_native.raw", first=0)
    path.write_bytes(t.reals(i).tobytes())
    return Named(2, 1267, [tail(path), "size of float32"])


@kind(*ANY, n=4)
def missing_result(f):
    i = int(f.rng.integers(0, 3))
    shutil.rmtree(f.result(i))
    return Named(2, 1264, [f"Result_{i} is missing"])


@kind(*ANY)
def extra_tensor_in_one_result(f):
    i = int(f.rng.integers(1, f.n))
    (f.result(i) / "stranger.raw").write_bytes(b"1234")
    return Named(2, 1264, [f"Result_{i} has 'stranger.raw'"])


@kind("context", "prepared")
def extra_tensor_everywhere(f):
    for i in range(f.n):
        (f.result(i) / "stranger.raw").write_bytes(b"1234")
    return Named(2, 1264, ["'stranger', which is no output"])


@kind(*ANY)
def stray_file(f):
    i = int(f.rng.integers(0, f.n))
    (f.result(i) / "notes.txt").write_text("hello")
    return Named(0, None, ["ignored", "'notes.txt'"], f.n)


@kind(*ANY)
def renamed_file(f):
    _, i, path = pick(f)
    path.rename(path.with_name("ren_" + path.name))
    return Named(2, 1264, [f"Result_{i} has no '{path.name}'", f"it has 'ren_{path.name}'"])


@kind("context", "prepared", sidecars=False, style="native")
def renamed_tensor(f):
    t = f.tensors[f.rng.integers(len(f.tensors))]
    for i in range(f.n):
        for s in f.files(t):
            (f.result(i) / f"{t.file}{s}").rename(f.result(i) / f"ren_{t.file}{s}")
    return Named(2, 1264, [f"'ren_{t.file}', which is no output"])


@kind("context", "prepared", style="both", dtypes=QUANTISED)
def nan_beside_codes(f):
    return put_float(f, np.nan, "nan", first=0)


@kind("context", "prepared", style="float", dtypes=QUANTISED)
def nan_instead_of_codes(f):
    return put_float(f, np.nan, "is NaN")


@kind("context", "prepared", style="float", dtypes=QUANTISED)
def infinity_instead_of_codes(f):
    return put_float(f, np.inf, "is infinite")


@kind("context", "prepared", style="both", dtypes=QUANTISED)
def float_and_native_disagree(f):
    return put_float(f, None, "native file has quantised value")


def put_float(f, value, text, first=0):
    t, i, path = pick(f, ".raw", first=first)
    data = np.frombuffer(path.read_bytes(), np.float32).copy()
    k = int(f.rng.integers(data.size))
    data[k] = data[k] + np.float32(t.scale) if value is None else value
    path.write_bytes(data.tobytes())
    return Named(2, 1276, [tail(path), f"element {k} of '{t.file}'", text])


@kind("context", "prepared", style="both", dtypes=QUANTISED)
def flipped_code(f):
    t, i, path = pick(f, "_native.raw", first=0)
    data = np.frombuffer(path.read_bytes(), t.stored).copy()
    k = int(f.rng.integers(data.size))
    data[k] ^= 1
    path.write_bytes(data.tobytes())
    return Named(2, 1276, [f"Result_{i}/{t.file}.raw", f"element {k} of '{t.file}'"])


@kind("context", "prepared", style="native", dtypes=["uint4"])
def code_out_of_range(f):
    return put_byte(f, 16 + int(f.rng.integers(200)), "no uint4")


@kind("context", "prepared", style="native", dtypes=["bool"])
def bool_out_of_range(f):
    return put_byte(f, 2 + int(f.rng.integers(200)), "no bool")


def put_byte(f, value, text):
    t, i, path = pick(f, "_native.raw", first=0)
    data = bytearray(path.read_bytes())
    data[int(f.rng.integers(len(data)))] = value
    path.write_bytes(data)
    return Named(2, 1257, [f"{t.file}_native.raw", f"is {value}, which is {text}"])


# -- how far the run came --

def put_metadata(f, text):
    f.metadata.write_text(text)
    return "execution_metadata.yaml"


@kind(*ANY, n=4)
def fewer_inferences_than_results(f):
    if f.mode == "context" and f.graph:
        return None
    n = int(f.rng.integers(1, 4))
    name = put_metadata(f, f"inferences_completed: {n}\n")
    return Named(5, None, ["partial", name, f"states {n} inferences_completed"], n)


@kind(*ANY)
def no_inference_completed(f):
    if f.mode == "context" and f.graph:
        return None
    return Named(2, 1261, [put_metadata(f, "inferences_completed: 0\n"), "no inference is complete"])


@kind(*ANY)
def more_inferences_than_results(f):
    if f.mode == "context" and f.graph:
        return None
    return Named(2, 1270, [put_metadata(f, f"inferences_completed: {f.n + 1}\n"), f"only {f.n} folders"])


@kind(*ANY)
def inferences_not_a_number(f):
    word = str(f.rng.choice(["many", "-1", "3.5", "[1]", "''", "1e99"]))
    return Named(2, 1270, [put_metadata(f, f"inferences_completed: {word}\n"), "'inferences_completed' is a whole number"])


@kind(*ANY)
def inferences_absent(f):
    return Named(0, None, [put_metadata(f, "graph_name: g\n"), "does not state 'inferences_completed'"], f.n)


@kind(*ANY)
def inferences_twice(f):
    return Named(2, 1270, [put_metadata(f, "inferences_completed: 1\ninferences_completed: 2\n"), "second"])


@kind(*ANY)
def metadata_broken(f):
    text = str(f.rng.choice(["a: [1, 2\n", "\t- x\n", "a: 'b\n", "key: : :\n", "a: b: c\n"]))
    return Named(2, 1270, [put_metadata(f, text)])


@kind(*ANY)
def metadata_of_another_kind(f):
    return Named(2, 1270, [put_metadata(f, "- 1\n- 2\n"), "mapping"])


@kind("prepared")
def exit_code_not_zero(f):
    (f.top / "exit_code").write_text("139\n")
    return Named(5, None, ["failed", "exit code 139"], f.n)


@kind("prepared")
def exit_code_missing(f):
    (f.top / "exit_code").unlink()
    return Named(5, None, ["partial", "exit_code", "did not end"], f.n)


@kind("prepared")
def exit_code_garbage(f):
    (f.top / "exit_code").write_text("fine\n")
    return Named(2, 1270, ["exit_code", "'fine'"])


@kind("prepared")
def run_did_not_happen(f):
    shutil.rmtree(f.output)
    return Named(2, 1261, ["output", "run.sh was not run"])


@kind(*ANY)
def no_results(f):
    for i in range(f.n):
        shutil.rmtree(f.result(i))
    return Named(2, 1261, ["holds no Result_<i>"])


@kind(*ANY)
def results_without_tensors(f):
    for i in range(f.n):
        shutil.rmtree(f.result(i))
        f.result(i).mkdir()
    return Named(2, 1261, ["holds no .raw file"])


# -- the context's JSON --

def change_output(f, change):
    root = f.context()
    usable = [i for i, t in enumerate(f.tensors) if t.scale]
    i = usable[f.rng.integers(len(usable))]
    change(root["info"]["graphs"][0]["info"]["graphOutputs"][i]["info"])
    f.write_context(root)
    return f.tensors[i]


def pair_of(info):
    params = info["quantizeParams"]
    return params.get("scaleOffset") or params.get("scaleOffsetEncoding")


@kind("context")
def context_broken(f):
    text = f.context_path.read_bytes()
    f.context_path.write_bytes(text[:int(f.rng.integers(1, len(text) - 1))])
    return Named(2, 1270, ["context.json", "no JSON"])


@kind("context")
def context_not_utf8(f):
    f.context_path.write_bytes(f.context_path.read_bytes() + b"\xff")
    return Named(2, 1270, ["context.json", "no JSON"])


@kind("context")
def context_missing(f):
    f.context_path.unlink()
    return Named(2, 204, ["context.json"])


@kind("context")
def context_of_another_kind(f):
    f.context_path.write_text('{"version": "1.0.0"}')
    return Named(2, 1270, ["context.json", "'graphs'"])


@kind("context", dtypes=QUANTISED)
def context_key_missing(f):
    key = str(f.rng.choice(["name", "dataType", "dimensions"]))
    t = change_output(f, lambda info: info.pop(key))
    return Named(2, None, ["context.json", f"'{key}'"] + ([] if key == "name" else [t.file]))


@kind("context", dtypes=QUANTISED)
def context_key_of_another_type(f):
    key, value = [("dimensions", "1x2"), ("dimensions", [1, "2"]), ("dimensions", [-1]), ("dataType", True), ("name", 7)][
        f.rng.integers(5)]
    t = change_output(f, lambda info: info.update({key: value}))
    return Named(2, None, ["context.json", f"'{key}'"] + ([] if key == "name" else [t.file]))


@kind("context", dtypes=QUANTISED)
def context_type_unknown(f):
    t = change_output(f, lambda info: info.update(dataType="QNN_DATATYPE_FLOAT_9"))
    return Named(2, 1270, ["context.json", t.file, "'dataType'"])


@kind("context", dtypes=["uint8", "uint16"])
def offset_of_the_wrong_sign(f):
    t = change_output(f, lambda info: pair_of(info).update(offset=int(f.rng.integers(1, 200))))
    return Named(2, 1203, ["context.json", t.file])


@kind("context", dtypes=QUANTISED)
def offset_missing(f):
    t = change_output(f, lambda info: pair_of(info).pop("offset"))
    return Named(2, 1203, ["context.json", t.file, "'offset'"])


@kind("context", dtypes=QUANTISED)
def scale_zero(f):
    t = change_output(f, lambda info: pair_of(info).update(scale=0.0))
    return Named(2, 1203, ["context.json", t.file])


@kind("context", dtypes=QUANTISED)
def scale_negative(f):
    t = change_output(f, lambda info: pair_of(info).update(scale=-0.5))
    return Named(2, 1203, ["context.json", t.file])


@kind("context", dtypes=QUANTISED)
def scale_nan(f):
    change_output(f, lambda info: pair_of(info).update(scale=float("nan")))
    return Named(2, 1270, ["context.json", "no JSON", "line"])


@kind("context", dtypes=QUANTISED)
def scale_text(f):
    t = change_output(f, lambda info: pair_of(info).update(scale="0.5"))
    return Named(2, 1203, ["context.json", t.file, "'scale'"])


@kind("context", dtypes=QUANTISED)
def dimensions_contradict_the_files(f):
    t = change_output(f, lambda info: info.update(dimensions=[2, *info["dimensions"]]))
    return Named(2, 1267, [f"Result_0/{t.file}", f"'{t.file}'"])


@kind("context", style="native", dtypes=["uint8", "int8"])
def type_contradicts_the_files(f):
    t = change_output(f, lambda info: info.update(dataType="QNN_DATATYPE_FLOAT_16"))
    return Named(2, 1267, [f"Result_0/{t.file}", "float16"])


@kind("context")
def tensor_described_twice(f):
    root = f.context()
    outputs = root["info"]["graphs"][0]["info"]["graphOutputs"]
    i = int(f.rng.integers(len(outputs)))
    outputs.append(outputs[i])
    f.write_context(root)
    return Named(2, 1270, ["context.json", f"'{f.tensors[i].file}' twice"])


@kind("context")
def graph_of_another_name(f):
    root = f.context()
    graph = root["info"]["graphs"][0]
    root["info"]["graphs"] = [{"info": dict(graph["info"], graphName=name)} for name in ("left", "right")]
    f.write_context(root)
    return Named(2, 1270 if f.graph else 1243, ["context.json", "'left', 'right'"])


@kind("context", style="native", dtypes=QUANTISED)
def nothing_states_the_type(f):
    f.arguments, f.has_sidecars = [], False
    for path in f.results.glob("Result_*/*.json"):
        path.unlink()
    return Named(2, 1273, ["type of the native tensor"])


@kind("context", style="float")
def nothing_states_the_shape(f):
    f.arguments = []
    return Named(2, 1273, ["nothing states the shape of"])


@kind("model", shape=(1, 4, 4, 4))
def layout_is_ambiguous(f):
    root = f.context()
    f.write_context(root)
    return Named(2, 1273, ["nothing states the layout of", "1x4x4x4"])


@kind("model", shape=(1, 3, 4, 5))
def layout_is_not_stated(f):
    return Named(2, 1273, ["nothing states the layout of", "1x3x4x5"])


@kind("model", shape=(1, 3, 4, 5))
def shape_is_not_the_models(f):
    root = f.context()
    i = int(f.rng.integers(len(f.tensors)))
    root["info"]["graphs"][0]["info"]["graphOutputs"][i]["info"]["dimensions"] = [1, 5, 4, 3]
    f.write_context(root)
    return Named(2, 1257, [f.tensors[i].file, "1x5x4x3", "1x3x4x5"])


# -- <name>_native.raw.json --

def some_sidecar(f):
    usable = [t for t in f.tensors if f.has_native(t) and t.scale]
    t = usable[f.rng.integers(len(usable))]
    return t, f.sidecar(t, int(f.rng.integers(1, f.n)))


@kind("context", style="native", dtypes=QUANTISED, sidecars=True)
def sidecar_broken(f):
    t, path = some_sidecar(f)
    path.write_text('{"quantizeParams": ')
    return Named(2, 1270, [tail(path), "no JSON"])


@kind("context", style="native", dtypes=QUANTISED, sidecars=True)
def sidecar_contradicts(f):
    t, path = some_sidecar(f)
    path.write_text(json.dumps({"scale": t.scale * 2, "offset": -t.zero_point}))
    return Named(2, 1270, [tail(path), f"'{t.file}' has scale"])


@kind("context", style="native", dtypes=QUANTISED, sidecars=True)
def sidecar_missing(f):
    t, path = some_sidecar(f)
    path.unlink()
    return Named(2, 1264, [f"{path.parent.name} has no '{path.name}'"])


@kind("context", style="native", dtypes=QUANTISED, sidecars=True)
def sidecar_without_its_tensor(f):
    t, _ = some_sidecar(f)
    for i in range(f.n):
        (f.result(i) / f"{t.file}_native.raw").unlink()
    return Named(2, 1264, [f"'{t.file}_native.raw.json', but no '{t.file}_native.raw'"])


# -- what is no plain file --

@kind(*ANY)
def link_out_of_the_folder(f):
    _, i, path = pick(f, first=0)
    target = f.top / "elsewhere.raw"
    path.rename(target)
    path.symlink_to(target)
    return Named(2, 1264, [tail(path), "symbolic link"])


@kind(*ANY)
def link_to_itself(f):
    _, i, path = pick(f, first=0)
    path.unlink()
    path.symlink_to(path.name)
    return Named(2, 1264, [tail(path), "symbolic link"])


@kind(*ANY)
def result_is_a_link(f):
    i = int(f.rng.integers(1, f.n))
    f.result(i).rename(f.top / "elsewhere")
    f.result(i).symlink_to(f.top / "elsewhere")
    return Named(2, 1264, [f"Result_{i}'", "symbolic link"])


@kind(*ANY)
def result_is_a_file(f):
    i = int(f.rng.integers(0, f.n))
    shutil.rmtree(f.result(i))
    f.result(i).write_text("")
    return Named(2, 1264, [f"Result_{i}'", "no folder"])


@kind(*ANY)
def folder_instead_of_a_file(f):
    _, _, path = pick(f, first=0)
    path.unlink()
    path.mkdir()
    return Named(2, 207, [tail(path), "not a regular file"])


@kind(*ANY)
def pipe_instead_of_a_file(f):
    import os
    _, _, path = pick(f, first=0)
    path.unlink()
    os.mkfifo(path)
    return Named(2, 207, [tail(path), "not a regular file"])


@kind(*ANY)
def result_with_a_leading_zero(f):
    shutil.copytree(f.result(1), f.results / "Result_01")
    return Named(2, 1264, ["'Result_01'", "is not Result_<number>"])


@kind(*ANY)
def result_without_a_number(f):
    name = str(f.rng.choice(["Result_", "Result_one", "Result_-1", "Result_1 (copy)", "Result_0x1"]))
    shutil.copytree(f.result(1), f.results / name)
    return Named(2, 1264, [f"'{name}'", "is not Result_<number>"])


@kind(*ANY)
def name_that_is_no_utf8(f):
    import os
    _, i, path = pick(f, first=0)
    os.rename(path, os.fsencode(path.parent) + b"/x\xff.raw")
    return Named(2, 1264, ["'x\\xff.raw' is no UTF-8"])


# -- what was fed --

@kind("context", has_list=True)
def list_longer_than_the_results(f):
    f.write_list(f.lines()[:-1] + ["in0:=in/in0_0.raw" + (" in1:=in/in1_0.raw" if len(f.inputs) > 1 else "")])
    return Named(5, None, ["partial", f"of {f.n + 1} inferences", "input_list.txt"], f.n)


@kind("context", "prepared", has_list=True)
def list_shorter_than_the_results(f):
    f.write_list([line for line in f.list_path.read_text().splitlines() if line][:-1])
    return Named(2, 1270, ["input_list.txt", f"lists {f.n - 1} inferences"])


@kind("context", has_list=True)
def listed_file_missing(f):
    t, i = f.inputs[0], int(f.rng.integers(f.n))
    (f.output / "in" / f"{t.file}_{i}.raw").unlink()
    return Named(0, None, ["not stored", f"{t.file}_{i}.raw", f"line {i + 2}"], f.n)


@kind("context", has_list=True)
def listed_file_of_another_size(f):
    t, i = f.inputs[0], int(f.rng.integers(f.n))
    (f.output / "in" / f"{t.file}_{i}.raw").write_bytes(b"\x00" * 99999)
    return Named(2, 1267, [f"{t.file}_{i}.raw", "99999 bytes", f"input '{t.file}'"])


@kind("context", has_list=True)
def listed_item_with_two_marks(f):
    lines = f.lines()
    i = int(f.rng.integers(1, 1 + f.n))
    lines[i] = lines[i].replace(":=", ":=x:=", 1)
    f.write_list(lines)
    return Named(2, 1270, [f"input_list.txt':{i + 1}:", "two ':='"])


@kind("context", has_list=True)
def listed_item_without_path(f):
    lines = f.lines()
    i = int(f.rng.integers(1, 1 + f.n))
    lines[i] = "in0:="
    f.write_list(lines)
    return Named(2, 1270, [f"input_list.txt':{i + 1}:", "no path"])


@kind("context", has_list=True, n_inputs=2)
def listed_inputs_without_names(f):
    lines = f.lines()
    lines[1:1 + f.n] = [line.replace("in0:=", "").replace("in1:=", "") for line in lines[1:1 + f.n]]
    f.write_list(lines)
    return Named(2, 1270, ["input_list.txt':2", "several inputs need names"])


@kind("context", has_list=True, n_inputs=2)
def listed_line_with_fewer_inputs(f):
    lines = f.lines()
    i = int(f.rng.integers(2, 1 + f.n))
    lines[i] = lines[i].split()[0]
    f.write_list(lines)
    return Named(2, 1270, [f"input_list.txt':{i + 1} has 1 inputs"])


@kind("context", has_list=True, n_inputs=2)
def listed_input_twice(f):
    lines = f.lines()
    i = int(f.rng.integers(1, 1 + f.n))
    lines[i] = lines[i].replace("in1:=", "in0:=")
    f.write_list(lines)
    return Named(2, 1270, [f"input_list.txt':{i + 1}: input 'in0'"])


@kind("context", has_list=True)
def list_empty(f):
    f.write_list(["# nothing", "% either"])
    return Named(2, 1270, ["input_list.txt", "lists no inference"])


@kind("prepared")
def fed_file_changed(f):
    root = f.manifest()
    for result in root["results"]:
        for item in result["inputs"]:
            item["xxh3"] = "0" * 32
    root["fed"] = [{"edge": "fed edge", "input": 0}]
    f.write_manifest(root)
    return Named(2, 1270, [root["results"][0]["inputs"][0]["file"], "is not what", "npudiff.json"])


@kind("prepared")
def fed_file_of_another_size(f):
    root = f.manifest()
    root["fed"] = [{"edge": "fed edge", "input": 0}]
    f.write_manifest(root)
    file = root["results"][1]["inputs"][0]["file"]
    path = f.top / file
    path.write_bytes(path.read_bytes()[:-1])
    return Named(2, 1267, [file, f"input '{f.inputs[0].name}'"])


# -- the manifest --

@kind("prepared")
def manifest_broken(f):
    text = f.manifest_path.read_bytes()
    f.manifest_path.write_bytes(text[:int(f.rng.integers(1, len(text) - 1))])
    return Named(2, 1270, ["npudiff.json", "no JSON"])


@kind("prepared")
def manifest_of_another_version(f):
    f.write_manifest(dict(f.manifest(), npudiff_prepare=2))
    return Named(2, 1270, ["npudiff.json", "'npudiff_prepare'"])


def change_manifest(f, change, need=lambda t: True):
    root = f.manifest()
    usable = [i for i, t in enumerate(f.tensors) if need(t)]
    i = usable[f.rng.integers(len(usable))]
    change(root["outputs"][i])
    f.write_manifest(root)
    return f.tensors[i]


@kind("prepared")
def manifest_size_contradicts(f):
    t = change_manifest(f, lambda o: o.update(size_bytes=o["size_bytes"] + 1))
    return Named(2, 1270, ["npudiff.json", t.file, "'size_bytes'"])


@kind("prepared", dtypes=QUANTISED)
def manifest_scale_wrong(f):
    value = [[0.0], [-1.0], ["x"], [], [1e300]][f.rng.integers(5)]
    t = change_manifest(f, lambda o: o.update(scale=value))
    return Named(2, 1270, ["npudiff.json", t.file, "'scale'"])


@kind("prepared")
def manifest_type_unknown(f):
    t = change_manifest(f, lambda o: o.update(dtype="uint9"))
    return Named(2, 1270, ["npudiff.json", t.file, "'dtype'"])


@kind("prepared")
def manifest_layout_unknown(f):
    t = change_manifest(f, lambda o: o.update(layout="nhwc"))
    return Named(2, 1270, ["npudiff.json", t.file, "'layout'"])


@kind("prepared")
def manifest_names_collide(f):
    root = f.manifest()
    root["outputs"][1]["context_name"] = root["outputs"][0]["context_name"]
    f.write_manifest(root)
    return Named(2, 1270, ["npudiff.json", f"'{f.tensors[0].file}' twice"])


@kind("prepared")
def manifest_of_another_model(f):
    f.write_model(["a", "b"], (1, 2))
    return Named(2, 1270, ["npudiff.json", "a different model"])


@kind("prepared")
def manifest_against_the_context(f):
    root = f.context()
    root["info"]["buildId"] = "v2.48.40.260702151143"
    f.write_context(root)
    return Named(2, 1270, ["v2.48.40.260702151143", BUILD[1:]])


@kind("prepared", style="native", dtypes=QUANTISED)
def manifest_scale_against_the_context(f):
    t = change_output(f, lambda info: pair_of(info).update(scale=pair_of(info)["scale"] * 2))
    return Named(2, 1270, [f"'{t.file}' has scale", "npudiff.json", "context.json"])


# -- names, graphs, logs --

@kind("model", names=["stem", "a/b", "a_b", "out"], shape=(1, 5))
def names_collide(f):
    return Named(2, 1257, ["'a_b' may be any", "'a/b', 'a_b'"])


@kind("model")
def tensor_that_the_model_lacks(f):
    for i in range(f.n):
        (f.result(i) / "stranger.raw").write_bytes((f.result(i) / f"{f.tensors[0].file}.raw").read_bytes())
    f.arguments += ["--strict"]
    root = f.context()
    root["info"]["graphs"][0]["info"]["graphOutputs"].append(
        {"info": {"name": "stranger", "dimensions": list(f.tensors[0].shape), "dataType": "QNN_DATATYPE_FLOAT_32"}})
    f.write_context(root)
    return Named(2, 1261, ["stranger"])


@kind("context")
def several_graphs(f):
    if not f.graph:
        return None
    shutil.copytree(f.results, f.output / "other graph")
    return Named(2, 1243, [f"'{f.graph}'", "'other graph'", "--graph"])


@kind("context")
def graph_that_is_not_there(f):
    if not f.graph:
        return None
    f.arguments += ["--graph", "nowhere"]
    return Named(2, 1261, ["graph 'nowhere'", f"'{f.graph}'"])


@kind("context", "prepared")
def run_by_an_older_sdk(f):
    (f.output / "run.log").write_text("[ INFO ] Backend build version: v2.47.0.260601091503\n")
    return Named(2, 1270, ["run.log", "v2.47.0.260601091503", "2.51.0"])


@kind(*ANY)
def profile_without_its_header(f):
    (f.output / "profile.csv").write_text("1,EXECUTE,5,US,BACKEND,ROOT,QNN (execute) time\n")
    return Named(0, None, ["profile.csv", "no profile of QNN"], f.n)


@kind(*ANY)
def log_is_a_folder(f):
    (f.output / "run.log").unlink()
    (f.output / "run.log").mkdir()
    return Named(2, 1264, ["run.log", "no regular file"])


def make(top, rng, name):
    """A folder with the defect of that kind, and what must be said of it."""
    modes, wanted, inject = KINDS[name]
    while True:
        folder = Folder(top, rng, str(rng.choice(modes)), **wanted)
        if any(np.prod(t.shape, dtype=int) > 0 for t in folder.tensors):
            good = folder.expected(), list(folder.arguments)
            named = inject(folder)
            if named is not None:
                return folder, named, good
        shutil.rmtree(top)
