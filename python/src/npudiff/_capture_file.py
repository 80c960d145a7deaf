"""Captures as NumPy arrays. The format of the file is described with npudiff's own documentation."""
import collections.abc
import dataclasses
import os

import numpy as np

FORMAT = 1 # the newest that this module reads
_BITS = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def _stored_name(name):
    """The spelling of a name in HDF5 paths."""
    if not name:
        return "%00"
    spelled = name.replace("%", "%25").replace("/", "%2F")
    return "%2E" + spelled[1:] if set(spelled) == {"."} else spelled


def _name_of(stored):
    if stored == "%00":
        return ""
    return stored.replace("%2E", ".").replace("%2F", "/").replace("%25", "%")


def _plain(value):
    """An attribute as a Python value."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.bytes_) else value


def _array(dataset, rows):
    """The dataset as an array of its own type: HDF5 lacks some, whose bits it holds as integers."""
    data = dataset[rows]
    named = _plain(dataset.attrs.get("dtype", b""))
    if named == "bool":
        return data.astype(bool)
    if named in _BITS:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"'{dataset.name}' is {named}, which needs the package ml_dtypes") from None
        return data.view(getattr(ml_dtypes, _BITS[named]))
    return data


def dequantised(data, of):
    """Quantised values, [samples, ...], of what has scale, zero_point and axis, as real numbers in float64."""
    if of.scale is None:
        return data.astype(np.float64)
    shape = [1] * data.ndim
    if of.axis is not None:
        shape[1 + of.axis] = len(of.scale)
    else:
        shape = shape[:0]
    scale, zero_point = (a.reshape(shape or (1,)) for a in (of.scale.astype(np.float64), of.zero_point))
    return scale * (data.astype(np.float64) - zero_point)


@dataclasses.dataclass(frozen=True)
class Edge:
    """A tensor that was recorded. shape is that of one sample, None when it never became known; scale and zero_point
    are None where it is not quantised, else arrays of one entry, or of one for each channel along `axis`."""

    name: str
    onnx_name: str
    op_types: str
    provider: str
    dtype: str
    shape: tuple
    is_model_input: bool
    is_model_output: bool
    scale: np.ndarray = dataclasses.field(default=None, compare=False)
    zero_point: np.ndarray = dataclasses.field(default=None, compare=False)
    axis: int = None


class _Probes(collections.abc.Mapping):
    """The probes of a capture by name, in the order of the run."""

    def __init__(self, group):
        self._group = group
        self._names = sorted((_name_of(n) for n in group), key=lambda n: int(group[_stored_name(n)].attrs["index"]))

    def __getitem__(self, name):
        if name not in self._names:
            raise KeyError(f"there is no probe '{name}'; there are {self._names}")
        return self._group[_stored_name(name)]

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)


class CaptureFile:
    """An open capture. Arrays are read when they are asked for. Close it, or use it in a `with`."""

    def __init__(self, path):
        import h5py # what opens no capture, such as a Twin, does without
        self.path = os.fspath(path)
        self._file = h5py.File(self.path, "r")
        try:
            self.format = int(self._file.attrs.get("npudiff_format", 0))
            if not 1 <= self.format <= FORMAT:
                raise ValueError(f"'{self.path}' is no capture" if self.format == 0 else
                                 f"'{self.path}' has format {self.format}; this version reads up to {FORMAT}")
            self.status = _plain(self._file.attrs["status"])
            self.edges = {edge.name: edge for edge in self._read_edges()}
            self._probes = _Probes(self._file["probes"])
        except BaseException:
            self._file.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self._file.close()

    def attributes(self, group):
        """The facts of a group as a dict: "device", "runtime", "model", "host", "failure", "truth" or "import"."""
        return {k: _plain(v) for k, v in self._file[group].attrs.items()} if group in self._file else {}

    @property
    def device(self):
        return self.attributes("device")

    @property
    def probes(self):
        """The names of the probes, in the order of the run."""
        return list(self._probes)

    def _read_edges(self):
        table = self._file["edges"]
        column = {name: [_plain(v) for v in table[name][()].tolist()] for name in
                  ("name", "onnx_name", "op_types", "provider", "dtype", "rank", "is_model_input", "is_model_output",
                   "quant_n", "quant_axis")}
        dims, scale, zero_point, at = table["dims"][()], table["scale"][()], table["zero_point"][()], 0
        for i in range(len(column["name"])):
            n, rank = column["quant_n"][i], column["rank"][i]
            is_quantised = n > 0
            yield Edge(column["name"][i], column["onnx_name"][i], column["op_types"][i], column["provider"][i],
                       column["dtype"][i], tuple(int(d) for d in dims[i][:rank]) if rank >= 0 else None,
                       bool(column["is_model_input"][i]), bool(column["is_model_output"][i]),
                       scale[at:at + n] if is_quantised else None, zero_point[at:at + n] if is_quantised else None,
                       column["quant_axis"][i] if column["quant_axis"][i] >= 0 else None)
            at += n

    def _probe(self, probe):
        if probe is None:
            if len(self._probes) != 1:
                raise ValueError(f"say which probe: there are {self.probes}")
            probe = self.probes[0]
        return self._probes[probe]

    def _dataset(self, probe, kind, name):
        group = self._probe(probe)
        stored = f"{kind}/{_stored_name(name)}"
        if stored not in group:
            there = [_name_of(n) for n in group.get(kind, {})]
            named = _name_of(group.name.split("/")[-1])
            raise KeyError(f"there is no '{name}' among the {kind} of probe '{named}': {there}")
        return group[stored]

    def outputs(self, edge, probe=None, samples=slice(None)):
        """What the device computed for the edge, [samples, ...]: quantised values where it is quantised. probe may be
        left out where there is one. samples is a slice."""
        return _array(self._dataset(probe, "outputs", edge), samples)

    def values(self, edge, probe=None, samples=slice(None)):
        """The same as real numbers: scale * (quantised value - zero point), in float64."""
        return dequantised(self.outputs(edge, probe, samples), self.edges[edge])

    def to_xarray(self, probe=None, samples=slice(None)):
        """The real numbers of all tensors of a probe as an xarray.Dataset: dimensions "sample" and "TENSOR_0" on, the
        operators and the scales in the attributes."""
        import xarray
        made = {}
        for name in self._probe(probe).get("outputs", {}):
            of, data = self.edges[_name_of(name)], self.values(_name_of(name), probe, samples)
            scales = {} if of.scale is None else {"scale": of.scale.tolist(), "zero_point": of.zero_point.tolist()}
            made[of.name] = (["sample", *(f"{of.name}_{d}" for d in range(data.ndim - 1))], data,
                             {"op_types": of.op_types, "dtype": of.dtype, **scales})
        return xarray.Dataset(made, attrs={k: v for k, v in self.device.items() if isinstance(v, (str, int, float))})

    def inputs(self, probe=None, samples=slice(None)):
        """What was fed, by the name of the model's input."""
        group = self._probe(probe).get("inputs", {})
        names = sorted(group, key=lambda n: int(group[n].attrs["index"]))
        return {_name_of(n): _array(group[n], samples) for n in names}

    def labels(self, probe=None):
        """Class indices of the samples, or None."""
        group = self._probe(probe)
        return group["labels"][()] if "labels" in group else None

    def latency_us(self, probe=None):
        """Microseconds of every run, [samples, repeats]; NaN where not recorded."""
        group = self._probe(probe)
        return group["latency_us"][()] if "latency_us" in group else np.empty((0, 0))

    def log(self, name):
        """The text of a log: "onnxruntime", "stdout", "profile", ... KeyError when there is none."""
        return bytes(self._file["logs"][_stored_name(name)][()]).decode("utf-8", "replace")


def load(path, *, xarray=False, probe=None):
    """Opens a capture: `with npudiff.load("gen3.h5") as capture: capture.outputs("logits")`. With xarray=True its real
    numbers as an xarray.Dataset (CaptureFile.to_xarray); the file is closed again."""
    if not xarray:
        return CaptureFile(path)
    with CaptureFile(path) as capture:
        return capture.to_xarray(probe)
