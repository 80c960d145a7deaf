"""A quantised model on a chip that is not there: `Twin`."""
import collections.abc
import ctypes
import dataclasses
import os
import statistics
import threading
import typing

import numpy as np

from npudiff import _library as lib
from npudiff._capture_file import dequantised

_INPUT, _OUTPUT, _TENSOR = range(3)
_SAMPLES_OF_A_CALL = 256 # between two calls Ctrl-C is seen


@dataclasses.dataclass(frozen=True)
class Value:
    """An input, output or tensor of a twin.

    dtype is that of the array, shape that of one sample (None: it cannot be had). scale and zero_point are None where it
    is not quantised, else arrays of one entry, or of one for each channel along `axis` of a sample; quantised is the
    type of its quantised values, then. op_types are the operators of the layer that makes a tensor ("Conv+Relu")."""

    name: str
    dtype: np.dtype
    shape: typing.Optional[tuple]
    op_types: str = ""
    quantised: typing.Optional[str] = None
    scale: typing.Optional[np.ndarray] = dataclasses.field(default=None, compare=False)
    zero_point: typing.Optional[np.ndarray] = dataclasses.field(default=None, compare=False)
    axis: typing.Optional[int] = None

    def real(self, array):
        """Quantised values of it, [samples, ...], as real numbers in float64: scale * (quantised value - zero point)."""
        return dequantised(np.asarray(array), self)


class Accuracy(typing.NamedTuple):
    """right of n samples are right; share is right / n, low and high the ends of the interval for it (Wilson)."""

    right: int
    n: int
    share: float
    low: float
    high: float

    def __str__(self):
        return f"{100 * self.share:.2f} % ({self.right} of {self.n}; {100 * self.low:.2f} to {100 * self.high:.2f} %)"


def wilson(right, n, confidence=0.95):
    """The ends of Wilson's interval for a proportion of which right of n trials were seen: "Probable inference, the law of
    succession, and statistical inference", J. Am. Stat. Assoc. 22 (1927) 209. (0, 1) when n is 0."""
    if n == 0:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    middle, spread = right + z * z / 2, z * (right * (n - right) / n + z * z / 4) ** 0.5
    low, high = (middle - spread) / (n + z * z), (middle + spread) / (n + z * z)
    return (0.0 if right == 0 else low), (1.0 if right == n else high)


def _dtype(number):
    name = lib.library().nd_dtype_name(number).decode()
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))


def _value(given):
    io = given.io
    shape = tuple(io.shape.dims[:io.shape.rank]) if io.shape.rank >= 0 else None
    made = Value(io.name.decode(), _dtype(io.dtype), shape, (given.op_types or b"").decode())
    if not io.quant or io.quant.contents.n == 0:
        return made
    quant = io.quant.contents
    return dataclasses.replace(made, quantised=lib.library().nd_dtype_name(io.quant_dtype).decode(),
                               scale=np.array(quant.scale[:quant.n], np.float32),
                               zero_point=np.array(quant.zero_point[:quant.n], np.int64),
                               axis=quant.axis if quant.axis >= 0 else None)


class Twin:
    """A quantised model on a chip, without the chip, its SDK or a simulator: the bits that Qualcomm's HTP gives.

        twin = npudiff.Twin("model.onnx", "gen3")
        logits = twin.run({"image": images})["logits"]     # images: float32 [n, 1, 3, 224, 224]
        codes = twin.run(images, tensors="all")            # {tensor: quantised values [n, ...]}
        print(twin.marks)                                  # what is not known to be right, with the reason
        print(twin.accuracy(images, labels))               # 99.43 % (696 of 700; 98.54 to 99.78 %)

    model   path of an ONNX file in QDQ format (QuantizeLinear and DequantizeLinear). It is read once.
    chip    "gen1" to "gen5" or "SM8650", with "@qairt-2.48" behind it for the arithmetic of that SDK.
    strict  refuse what is not known: `run` raises TroubleError, which names the tensor and the reason.
    threads over which samples are spread; 0: all processors. Results do not depend on it.
    dims    sizes of dimensions that the model leaves open, by name: {"batch": 1}.

    `inputs`, `outputs` and `tensors` are dicts of Value by name, in the order of the model. Tensors are what npudiff
    records: an output's tensor has the name of the output, and holds its quantised values.

    What is not known is rounded exactly, and in `marks`: {tensor: reason}, of all runs so far. `behind` are the tensors
    that follow from those. All others are claimed to be right in every bit.

    NaN is quantised to the least quantised value, infinities to the ends of the range.

    Errors: TroubleError for a chip, an SDK, an operator or a model that cannot be had, with what is known instead;
    ValueError and TypeError for arrays that do not fit; OSError without the library. Threads may share a twin: they take turns."""

    def __init__(self, model, chip, strict=False, *, threads=0, dims=None):
        self._model, self._twin, self._lock = ctypes.c_void_p(), ctypes.c_void_p(), threading.Lock()
        chip = chip[5:] if chip.startswith("twin:") else chip
        self.model, self.chip, self.strict = os.fspath(model), chip, bool(strict)
        text = f"{chip}{'&' if '?' in chip else '?'}strict=1" if strict else chip
        lib.call("nd_model_load", os.fsencode(model), ctypes.byref(self._model))
        for name, size in (dims or {}).items():
            lib.call("nd_model_set_dim", self._model, name.encode(), size)
        lib.call("nd_twin_model_open", self._model, text.encode(), threads, ctypes.byref(self._twin))
        self.inputs, self.outputs, self.tensors = ({v.name: v for v in map(_value, self._values(kind))}
                                                   for kind in (_INPUT, _OUTPUT, _TENSOR))

    def _values(self, kind):
        n = ctypes.c_size_t()
        values = lib.library().nd_twin_model_values(self._twin, kind, ctypes.byref(n))
        return values[:n.value]

    def __repr__(self):
        return f"<npudiff twin of {self.chip}: {self.model}, {len(self.tensors)} tensors>"

    def __del__(self):
        if getattr(self, "_twin", None):
            lib.library().nd_twin_model_close(ctypes.byref(self._twin))
        if getattr(self, "_model", None):
            lib.library().nd_model_destroy(ctypes.byref(self._model))

    @property
    def marks(self):
        return {v.io.name.decode(): v.why.decode() for v in self._values(_TENSOR) if v.why}

    @property
    def behind(self):
        return [v.io.name.decode() for v in self._values(_TENSOR) if v.is_behind]

    def run(self, inputs, tensors=None):
        """What the chip gives for these samples: {name: array}.

        inputs   {name: array}, or an array where the model has one input, or a list of such for one sample each. Arrays
                 are [n, ...]: samples, then the shape of a sample. Where that begins with 1 (a batch), [n, ...] without
                 it will do, and results come without it, too. So a single sample is a batch of one.
                 Types must be those of the model; float64 is taken for float32.
        tensors  None: the outputs as the model gives them. Names, or "all": these tensors instead, as they are recorded:
                 quantised values, or float32 where a tensor has none. What is recorded can change the chip: a layer that
                 nobody looks at may be one operation with the next.

        The arrays are new, belong to the caller, and were written by the library: nothing was copied. With strict=True
        TroubleError names a tensor that is not known."""
        arrays, n, has_axis = self._samples(inputs)
        kind, wanted = (_OUTPUT, list(self.outputs)) if tensors is None else (_TENSOR, self._names(tensors))
        of = self.outputs if kind == _OUTPUT else self.tensors
        made = {name: np.empty((n, *of[name].shape), of[name].dtype) for name in wanted}
        for start in range(0, n, _SAMPLES_OF_A_CALL):
            stop = min(n, start + _SAMPLES_OF_A_CALL)
            self._call(kind, of, stop - start, [a[start:stop] for a in arrays], {k: a[start:stop] for k, a in made.items()})
        if has_axis:
            return made
        return {name: a.reshape(n, *a.shape[2:]) if a.shape[1:2] == (1,) else a for name, a in made.items()}

    def _call(self, kind, of, n, arrays, made):
        def pointers(items):
            return (ctypes.c_void_p * max(len(items), 1))(*(None if a is None else a.ctypes.data for a in items))

        fed, given = pointers(arrays), pointers([made.get(name) for name in of])
        samples = lib.TwinSamples(n, fed, given if kind == _OUTPUT else None, given if kind == _TENSOR else None)
        with self._lock:
            lib.call("nd_twin_model_run", self._twin, ctypes.byref(samples))

    def _names(self, tensors):
        there = [name for name, value in self.tensors.items() if value.shape is not None]
        names = there if tensors == "all" else [tensors] if isinstance(tensors, str) else list(tensors)
        unknown = [name for name in names if name not in there]
        if unknown:
            raise KeyError(f"there is no tensor {unknown[0]!r}; there are {there}")
        return names

    def _samples(self, inputs):
        """The arrays of all inputs, C order, [n, *shape]; n; and whether the caller's had that axis."""
        if isinstance(inputs, (list, tuple)):
            if inputs and isinstance(inputs[0], collections.abc.Mapping):
                inputs = {name: np.stack([np.asarray(one[name]) for one in inputs]) for name in inputs[0]}
            else:
                inputs = np.stack([np.asarray(one) for one in inputs]) if inputs else np.empty(0)
        if not isinstance(inputs, collections.abc.Mapping):
            if len(self.inputs) != 1:
                raise ValueError(f"the model has inputs {list(self.inputs)}: give a dict")
            inputs = {next(iter(self.inputs)): inputs}
        if set(inputs) != set(self.inputs):
            raise ValueError(f"the model has inputs {list(self.inputs)}, not {list(inputs)}")
        found = [self._array(value, inputs[name]) for name, value in self.inputs.items()]
        if len({(len(array), has_axis) for array, has_axis in found}) > 1:
            raise ValueError(f"inputs have different numbers of samples, or some have an axis of samples and some have not: "
                             f"{ {name: np.shape(inputs[name]) for name in self.inputs} }")
        return [array for array, _ in found], *((len(found[0][0]), found[0][1]) if found else (1, True))

    @staticmethod
    def _array(value, given):
        array = np.asarray(given)
        if array.dtype != value.dtype and not (array.dtype == np.float64 and value.dtype == np.float32):
            raise TypeError(f"input '{value.name}' is {value.dtype}, not {array.dtype}")
        has_axis = array.ndim == len(value.shape) + 1
        if array.shape[1:] != (value.shape if has_axis else value.shape[1:]) or not (has_axis or value.shape[:1] == (1,)):
            batch = f", or (n, {str(value.shape[1:])[1:]}" if value.shape[:1] == (1,) else ""
            raise ValueError(f"input '{value.name}' is (n, {str(value.shape)[1:]}{batch}, not {array.shape}")
        array = np.ascontiguousarray(array, value.dtype)
        return (array if has_axis else array.reshape(len(array), *value.shape)), has_axis

    def accuracy(self, inputs, labels, output=None, confidence=0.95):
        """How often the largest value of an output is that of the label (of equal ones the first), as Accuracy.

        labels  class indices, [n]; output: its name, where the model has several."""
        if output is None and len(self.outputs) != 1:
            raise ValueError(f"say which output: there are {list(self.outputs)}")
        values = self.run(inputs)[output or next(iter(self.outputs))]
        labels = np.asarray(labels).ravel()
        if len(labels) != len(values):
            raise ValueError(f"there are {len(values)} samples and {len(labels)} labels")
        right = int((values.reshape(len(values), -1).argmax(axis=1) == labels).sum()) if len(values) else 0
        return Accuracy(right, len(values), right / len(values) if len(values) else float("nan"),
                        *wilson(right, len(values), confidence))
