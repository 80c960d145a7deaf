"""Runners: programs that run models for npudiff, as the device `exec:NAME` (docs/reference/runner.md).

A runner is an executable file `npudiff-runner-NAME`. This module speaks the protocol for it; 20 lines are left:

    #!/usr/bin/env python3
    import numpy, onnxruntime
    from npudiff.runner import Runner, main

    class Ort(Runner):
        name, version = "ort", "1"
        versions = {"onnxruntime": onnxruntime.__version__}

        def load(self, job):
            self.session = onnxruntime.InferenceSession(job.model)

        def run(self, inputs):
            names = [t.name for t in self.job.outputs]
            return dict(zip(names, self.session.run(names, inputs)))

    main(Ort)

It needs nothing but NumPy, and may be copied out of the wheel as a file of its own."""
import functools
import json
import math
import os
import struct
import sys
import traceback

import numpy

PROTOCOL = 2
_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"NDR1"
# What NumPy does not have is handed over as bytes of these types.
_RAW = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "uint4": "uint8", "int4": "int8"}


class RunnerError(Exception):
    """What a runner cannot do: the device's failure says so. `stage` is "load" or "run" unless it is given."""

    def __init__(self, text, stage=None, operator=""):
        super().__init__(text)
        self.stage, self.operator = stage, operator


class Tensor:
    """One tensor that is asked for, or an input.

    name: in the model file. label: what npudiff calls it. type: "uint8", "float32", ... shape: a tuple; None: not known.
    scale, zero_point: lists, empty where it is not quantised; axis: of the channels, or None.
    real = scale * (value - zero_point)."""

    def __init__(self, description):
        self.name = description["name"]
        self.label = description.get("label", self.name)
        self.type = description.get("type", "none")
        shape = description.get("shape")
        self.shape = None if shape is None else tuple(shape)
        self.scale = description.get("scale", [])
        self.zero_point = description.get("zero_point", [])
        self.axis = description.get("axis")
        self.is_output = description.get("is_output", False)


class Job:
    """What is to be done. model: a path; the tensors that are asked for are outputs of that file's graph.

    inputs, outputs: lists of Tensor. types: {name: type} of the outputs. options: those of the device's URI, texts. threads,
    repeats: numbers. probes: a list of {"name", "samples"}."""

    def __init__(self, message):
        self.model = message["model"]
        self.inputs = [Tensor(t) for t in message["inputs"]]
        self.outputs = [Tensor(t) for t in message["outputs"]]
        self.types = {t.name: t.type for t in self.outputs}
        self.options = message.get("options", {})
        self.threads = message.get("threads", 1)
        self.repeats = message.get("repeats", 1)
        self.probes = message.get("probes", [])


class Runner:
    """Base class. `options` are the names of the options that the runner knows; None: any.

    `missing`: {name of a tensor: why it cannot be given}, filled by load. `placement`: a list of (node, operator type,
    where), where it is known. `outputs_of` may be left to run."""

    name, version, versions, options = "runner", "0", {}, ()

    def __init__(self, link):
        self._link = link
        self.job, self.missing, self.placement = None, {}, []

    def log(self, text, severity=2):
        """A line for the capture's log. severity: 0 verbose, 1 info, 2 warning, 3 error."""
        self._link.send({"message": "log", "severity": severity, "text": str(text)})

    def load(self, job):
        """Loads the model. Fills self.missing and self.placement. Raises RunnerError, or anything, when it cannot."""
        raise NotImplementedError

    def run(self, inputs):
        """Runs one sample: {name: array} of all outputs of the job that are not missing. inputs: {name: array}."""
        raise NotImplementedError


# How far floats may be from a step of a tensor, in steps, to count as its values; chosen: npudiff holds each sample to less.
_NEAR = 0.01
_TO_NCHW = (0, 3, 1, 2)


def _plain(name):
    """A name without what engines change in it."""
    return name.removesuffix(":0").replace("/", "_").replace(".", "_").replace(":", "_")


def _order(tensor, array, layout):
    """The order of the array's dimensions that makes the tensor's shape, and whether another one would do as well; None: none."""
    shape, orders = tuple(array.shape), []
    if tensor.shape is None or shape == tensor.shape:
        orders.append(tuple(range(array.ndim)))
    if array.ndim == 4 and tensor.shape == tuple(shape[i] for i in _TO_NCHW):
        orders.append(_TO_NCHW)
    is_open = len(orders) == 2 and min(shape[1] * shape[2], shape[3]) > 1
    return (orders[-1 if layout == "nhwc" else 0], is_open and layout is None) if orders else None


def _lies_on_steps(tensor, array):
    if not tensor.scale or array.dtype.kind != "f":
        return array.dtype.kind == "f" or array.dtype.name == tensor.type
    shape = [1] * array.ndim
    if len(tensor.scale) > 1:
        shape[tensor.axis] = -1
    steps = array.astype(numpy.float64) / numpy.reshape(tensor.scale, shape)
    codes = numpy.rint(steps) + numpy.reshape(tensor.zero_point, shape)
    limits = numpy.iinfo(_RAW.get(tensor.type, tensor.type))
    return bool((numpy.abs(steps - numpy.rint(steps)) <= _NEAR).all() and (codes >= limits.min).all() and (codes <= limits.max).all())


class Matching:
    """Which of an engine's tensors is which of those that are asked for, for engines that change names, order or layout.

    tensors: list of Tensor. arrays: {the engine's name: array} of one sample, whose values should not be all alike. layout: "nchw" or
    "nhwc" of the engine's images; None: as the shapes say. By name first (without ":0"; "/" and "." may be "_"); the others by shape
    and by values (floats lie on the steps of their tensor), where that leaves one possibility. `missing`: {name: reason} of tensors
    without one; `doubts`: a sentence for each that was not found by its name and shape, to be logged."""

    def __init__(self, tensors, arrays, layout=None):
        self.pairs, self.missing, self.doubts = {}, {}, []
        self._layout, left = layout, dict(arrays)
        for tensor in tensors:
            names = [key for key in left if key == tensor.name] or [key for key in left if _plain(key) == _plain(tensor.name)]
            if len(names) == 1 and self._fits(tensor, left[names[0]]):
                self._take(tensor, names[0], left)
            elif len(names) == 1:
                left.pop(names[0])
                self.missing[tensor.name] = "the engine's tensor of that name has another shape, or values between its steps: it was requantised"
        self._match_others([tensor for tensor in tensors if tensor.name not in self.pairs and tensor.name not in self.missing], left)

    def _match_others(self, rest, left):
        is_new = True
        while is_new:
            is_new = False
            for tensor in rest:
                fitting = [key for key, array in left.items() if tensor.name not in self.pairs and self._fits(tensor, array)]
                others = [t for t in rest if t is not tensor and t.name not in self.pairs
                          and fitting == [key for key, array in left.items() if self._fits(t, array)]]
                if len(fitting) == 1 and not others:
                    self.doubts.append(f"'{tensor.name}' is taken from the engine's '{fitting[0]}', the only one left with its shape and "
                                       "steps: the names differ")
                    self._take(tensor, fitting[0], left)
                    is_new = True
        for tensor in (t for t in rest if t.name not in self.pairs):
            fitting = [key for key, array in left.items() if self._fits(tensor, array)]
            self.missing[tensor.name] = ("none of the engine's tensors has its name, or its shape and steps: it was merged, or "
                                         "requantised" if not fitting else
                                         f"{len(fitting)} of the engine's tensors could be it: {', '.join(sorted(fitting)[:4])}")

    def _fits(self, tensor, array):
        order = _order(tensor, array, self._layout)
        return order is not None and _lies_on_steps(tensor, array.transpose(order[0]))

    def _take(self, tensor, key, left):
        order, is_open = _order(tensor, left.pop(key), self._layout)
        self.pairs[tensor.name] = (key, order)
        if is_open:
            self.doubts.append(f"'{tensor.name}' is taken as NCHW; its shape would be the same as NHWC")

    def apply(self, arrays):
        """{name: array} of the tensors that are not missing, in the layout that is asked for."""
        return {name: arrays[key].transpose(order) for name, (key, order) in self.pairs.items()}


class _Link:
    """Frames over the standard input and output that the runner was started with. What libraries print goes to
    standard error, which is in the capture's log. Reads and writes go past Python's buffers: each would be a copy more."""

    def __init__(self):
        self._in, self._out = os.dup(0), os.dup(1)
        sys.stdout.flush()
        os.dup2(2, 1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def send(self, message, parts=()):
        text = json.dumps(message).encode()
        views = [memoryview(part).cast("B") for part in parts if part.nbytes]
        header = _HEADER.pack(_MAGIC, len(text), sum(len(view) for view in views))
        _transfer(os.writev, self._out, [memoryview(header + text), *views])

    def receive(self):
        """(message, data: an array of bytes), or None when npudiff has ended."""
        header = bytearray(_HEADER.size)
        if not _transfer(os.readv, self._in, [memoryview(header)]):
            return None
        magic, json_bytes, data_bytes = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise RuntimeError("what came is no frame")
        text, data = bytearray(json_bytes), numpy.empty(data_bytes, numpy.uint8)
        if not _transfer(os.readv, self._in, [memoryview(text), memoryview(data)]):
            return None
        return json.loads(text), data


# Linux takes at most so many pieces in one call (IOV_MAX).
_MOST_PIECES = 1024


def _transfer(call, descriptor, views):
    """Reads or writes all bytes of the views. Whether it could: the other side may end while it is read from."""
    views = [view for view in views if len(view)]
    while views:
        count = call(descriptor, views[:_MOST_PIECES])
        if count == 0:
            return False
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if count:
            views[0] = views[0][count:]
    return True


@functools.cache
def _name_of(dtype):
    return "bool" if dtype.name == "bool_" else dtype.name


@functools.cache
def _dtype_of(name):
    return numpy.dtype(_RAW.get(name, name))


def _arrays(message, data):
    """{name: array} of the inputs; bytes of types that NumPy does not have are arrays of an integer type."""
    arrays, at = {}, 0
    for item in message["inputs"]:
        dtype = _dtype_of(item["type"])
        count = math.prod(item["shape"])
        arrays[item["name"]] = numpy.frombuffer(data, dtype, count, at).reshape(item["shape"])
        at += count * dtype.itemsize
    return arrays


def _answer(runner, outputs):
    """The message and its parts. A type that NumPy does not have keeps the name that was asked for."""
    items, parts = [], []
    for name, value in outputs.items():
        array = numpy.asarray(value, order="C")
        kind, wanted = _name_of(array.dtype), runner.job.types.get(name)
        kind = wanted if _RAW.get(wanted) == kind else kind
        items.append({"name": name, "type": kind, "shape": list(array.shape)})
        parts.append(array)
    return {"message": "result", "outputs": items}, parts


def _load(runner, message):
    runner.job, runner.missing, runner.placement = Job(message), {}, []
    runner.load(runner.job)
    return {"message": "ready", "missing": [{"name": n, "reason": r} for n, r in runner.missing.items()],
            "placement": [{"name": n, "op_type": o, "where": w} for n, o, w in runner.placement]}, ()


def _run(runner, message, data):
    answer, parts = _answer(runner, runner.run(_arrays(message, data)))
    return {**answer, "sample": message["sample"], "repeat": message["repeat"]}, parts


def main(runner_class):
    """Speaks with npudiff until that ends. Call it last."""
    link = _Link()
    runner = runner_class(link)
    hello = {"message": "hello", "protocol": PROTOCOL, "name": runner.name, "version": runner.version,
             "versions": dict(runner.versions, python=sys.version.split()[0], numpy=numpy.__version__)}
    if runner.options is not None:
        hello["options"] = list(runner.options)
    link.send(hello)
    while True:
        received = link.receive()
        if received is None or received[0]["message"] == "end":
            return
        message, data = received
        stage = "load" if message["message"] == "job" else "run"
        try:
            answer, parts = _load(runner, message) if stage == "load" else _run(runner, message, data)
        except RunnerError as error:
            answer = {"message": "error", "stage": error.stage or stage, "operator": error.operator, "text": str(error)}
            parts = ()
        except Exception as error: # pylint: disable=broad-except
            traceback.print_exc()
            answer = {"message": "error", "stage": stage, "text": f"{type(error).__name__}: {error}"}
            parts = ()
        link.send(answer, parts)
