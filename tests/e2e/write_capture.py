"""Writes captures with h5py alone, from what docs/reference/capture-format.md says: any values, stored in any way that
it allows.

A tensor is a numpy array [samples, dims...] of the stored type (bfloat16 as uint16, float8 and uint4 as uint8, int4 as
int8, bool as uint8).
"""
import ctypes
import ctypes.util

import h5py
import numpy as np

STORED = {"bfloat16": np.uint16, "bool": np.uint8, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8, "uint4": np.uint8,
          "int4": np.int8}


class _Digest(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxh3 = ctypes.CDLL(ctypes.util.find_library("xxhash")).XXH3_128bits
_xxh3.restype = _Digest
_xxh3.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def digest(data):
    """XXH3-128 of bytes or of an array's: (low, high)."""
    array = np.ascontiguousarray(np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data)
    done = _xxh3(array.ctypes.data, array.nbytes)
    return done.low, done.high


def digits(data):
    low, high = digest(data)
    return f"{high:016x}{low:016x}"


class Edge:
    """A tensor of the model: shape of a sample, and scales, zero points and axis where it is quantised."""

    def __init__(self, name, dtype, shape, scales=(), zero_points=(), axis=-1, is_output=False, is_input=False):
        self.name, self.dtype, self.shape = name, dtype, tuple(shape)
        self.scales, self.zero_points, self.axis = list(scales), list(zero_points), axis
        self.is_output, self.is_input = is_output, is_input

    @property
    def stored(self):
        return np.dtype(STORED.get(self.dtype, self.dtype))


class Contiguous:
    """How tensors are stored. Here: in one piece."""

    def create(self, group, name, data):
        return group.create_dataset(name, data=data, track_times=False)


class Chunked(Contiguous):
    """In chunks of about so many elements: whole samples, or pieces of one that are contiguous in C order."""

    def __init__(self, elements, deflate=None, shuffle=False):
        self.elements, self.options = elements, {"shuffle": shuffle}
        if deflate is not None:
            self.options.update(compression="gzip", compression_opts=deflate)

    def chunk(self, shape):
        chunk, left = [1] * len(shape), self.elements
        for i in reversed(range(len(shape))):
            chunk[i] = max(1, min(shape[i], left))
            if chunk[i] < shape[i]:
                break
            left //= chunk[i]
        return tuple(chunk)

    def create(self, group, name, data):
        if data.size == 0:
            return super().create(group, name, data)
        return group.create_dataset(name, data=data, chunks=self.chunk(data.shape), track_times=False, **self.options)


def fixed(texts):
    """Fixed-length strings, padded with NUL."""
    raw = [t.encode() for t in texts]
    return np.array(raw, dtype=h5py.string_dtype("utf-8", max([1, *map(len, raw)])))


def link(name):
    if name.strip(".") == "":
        return "%2E" + name[1:] if name else "%00"
    return name.replace("%", "%25").replace("/", "%2F")


def _text(item, **attributes):
    for name, value in attributes.items():
        item.attrs.create(name, fixed([value])[0], dtype=fixed([value]).dtype)


def _put(group, name, data, dtype=None):
    group.create_dataset(name, data=np.asarray(data, dtype), track_times=False)


def _write_edges(file, edges):
    table = file.create_group("edges")
    empty = fixed([""] * len(edges))
    for column in ("op_types", "node", "provider"):
        _put(table, column, empty)
    for column in ("name", "onnx_name"):
        _put(table, column, fixed([e.name for e in edges]))
    _put(table, "dtype", fixed([e.dtype for e in edges]))
    _put(table, "rank", [len(e.shape) for e in edges], np.int64)
    _put(table, "dims", np.reshape([list(e.shape) + [0] * (8 - len(e.shape)) for e in edges], (len(edges), 8)), np.int64)
    _put(table, "is_model_input", [e.is_input for e in edges], np.uint8)
    _put(table, "is_model_output", [e.is_output for e in edges], np.uint8)
    _put(table, "quant_n", [len(e.scales) for e in edges], np.int64)
    _put(table, "quant_axis", [e.axis for e in edges], np.int64)
    _put(table, "scale", [s for e in edges for s in e.scales], np.float32)
    _put(table, "zero_point", [z for e in edges for z in e.zero_points], np.int64)
    nodes = file.create_group("nodes")
    for column in ("name", "op_type", "domain", "provider"):
        _put(nodes, column, fixed([]))


def _write_output(probe, edge, data, storage):
    assert data.dtype == edge.stored and data.shape[1:] == edge.shape, edge.name
    item = storage.create(probe["outputs"], link(edge.name), data)
    _text(item, provider="")
    if edge.dtype in STORED:
        _text(item, dtype=edge.dtype)
    if edge.scales:
        item.attrs["axis"] = np.int64(edge.axis)
        item.attrs["scale"] = np.array(edge.scales, np.float32)
        item.attrs["zero_point"] = np.array(edge.zero_points, np.int64)


def _write_probe(group, index, edges, tensors, storage, digests_of):
    n_samples = {len(data) for data in tensors.values()}
    assert len(n_samples) == 1
    n = n_samples.pop()
    for name, value in (("index", index), ("n_inputs", 0), ("n_samples_expected", n), ("n_samples", n), ("n_repeats", 1)):
        group.attrs[name] = np.int64(value)
    _text(group, source="made")
    for name in ("inputs", "input_digests", "outputs", "digests", "repeats", "repeat_index"):
        group.create_group(name)
    for edge in edges:
        if edge.name not in tensors:
            continue
        data = tensors[edge.name]
        _write_output(group, edge, data, storage)
        told = digests_of.get(edge.name, data) # lies, where a test wants them
        _put(group["digests"], link(edge.name), np.array([[digest(s)] for s in told], np.uint64).reshape(n, 1, 2))
    _put(group, "latency_us", np.full((n, 1), np.nan))


def _type_name(item):
    kind = h5py.check_string_dtype(item.dtype)
    return f"text[{item.dtype.itemsize}]" if kind else item.dtype.name


def content_digest(file):
    """The text of docs/reference/capture-format.md, followed to the letter."""
    stream, paths = [], {"/": file}
    file.visititems(lambda path, item: paths.__setitem__(f"/{path}", item))
    for path in sorted(paths, key=str.encode):
        item = paths[path]
        is_set = isinstance(item, h5py.Dataset)
        if path.split("/")[1] == "probes" and path.split("/")[3:] == ["edge_digests"]:
            continue
        stream += ["dataset" if is_set else "group", path]
        if is_set:
            stream += [_type_name(item), "x".join(map(str, item.shape))]
        for name in sorted(item.attrs, key=str.encode):
            if path == "/" and name == "content_digest":
                continue
            kind = item.attrs.get_id(name)
            value = np.empty(kind.shape, kind.dtype)
            kind.read(value)
            stream += ["attribute", name, _type_name(kind), str(value.size) if kind.shape else "scalar"]
            stream.append(digits(value.tobytes()))
        parts = path.split("/")
        if is_set and not (parts[1] == "probes" and parts[3:4] and parts[3] in ("inputs", "outputs", "repeats", "reruns")):
            stream.append(digits(np.ascontiguousarray(item[()]).tobytes()))
    return digits(b"".join(text.encode() + b"\0" for text in stream))


def seal(file, changed=None):
    """Makes the digests of a capture that was changed those of what it holds now: npudiff concludes nothing from another.
    Repeats and reruns that were equal to the first stay so. changed: the stored names of the edges whose tensors were
    changed (None: any may be)."""
    from support import stored_name # which only tests of real captures have
    names = [n.decode() if isinstance(n, bytes) else n for n in file["edges/name"][:]]
    edge_of = {stored_name(name): row for row, name in enumerate(names)}
    for probe in file["probes"].values():
        if "edge_digests" in probe:
            del probe["edge_digests"] # what it states of the digests may be wrong now
        for name, data in probe.get("outputs", {}).items():
            if changed is not None and name not in changed:
                continue
            digests = probe["digests"][name]
            table = digests[()]
            first = table[:, 0].copy()
            for sample, values in enumerate(data[()]):
                table[sample, (table[sample] == first[sample]).all(axis=1)] = digest(values)
            if "rerun_digests" in probe:
                reruns = probe["rerun_digests"][()]
                for row, (sample, _) in enumerate(probe["rerun_samples"][()]):
                    if (reruns[row, edge_of[name]] == first[sample]).all():
                        reruns[row, edge_of[name]] = table[sample, 0]
                probe["rerun_digests"][...] = reruns
            for row, (sample, repeat) in enumerate(probe.get("repeat_index", {}).get(name, ())):
                table[sample, repeat] = digest(probe["repeats"][name][row])
            digests[...] = table
    text = content_digest(file)
    file.attrs.pop("content_digest", None)
    _text(file, content_digest=text)


def write_capture(path, device, edges, probes, storage=None, digests_of=None):
    """probes: {name: {edge: tensor}}; digests_of: {edge: tensor} whose digests are written instead of the true ones."""
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["npudiff_format"] = np.int64(1)
        _text(file, npudiff_version="0", status="complete")
        _text(file.create_group("device"), uri=device, label=device, kind="cpu")
        _text(file.create_group("model"), file="model.onnx", sha256="0" * 64)
        _write_edges(file, edges)
        for i, (name, tensors) in enumerate(probes.items()):
            group = file.create_group(f"probes/{link(name)}")
            _write_probe(group, i, edges, tensors, storage or Contiguous(), digests_of or {})
        _text(file, content_digest=content_digest(file))
    return path
