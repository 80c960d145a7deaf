#!/usr/bin/env python3
"""A runner of golden/models/mul.u8.onnx by NumPy, which speaks the protocol by itself, as docs/reference/runner.md has it.

Its own name says what is wrong with it: npudiff-runner-standin is healthy, npudiff-runner-shape gives a wrong shape, and so
on. Where it cannot tell (merged), it runs any model, and all tensors are zeros."""
import json
import os
import pathlib
import struct
import sys
import time

import numpy as np

DEFECT = pathlib.Path(sys.argv[0]).name.removeprefix("npudiff-runner-")
# Of the model's inputs, which are quantised values: scale and zero point.
INPUTS = {"a": (np.float32(0.0250787437), 121), "b": (np.float32(0.0185929649), 135)}
MERGED = "pool_QuantizeLinear_Output"
HEADER = struct.Struct("<4sIQ")
stays = False # when its standard input is closed


def send(message, data=b""):
    text = json.dumps(message).encode()
    os.write(1, HEADER.pack(b"NDR1", len(text), len(data)) + text + data)


def read(n):
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part:
            time.sleep(3600 if stays else 0)
            sys.exit(0)
        data += part
    return data


def receive():
    _, json_bytes, data_bytes = HEADER.unpack(read(HEADER.size))
    return json.loads(read(json_bytes)), read(data_bytes)


def scale_of(tensor):
    return np.float32(tensor["scale"][0]), tensor["zero_point"][0]


def real(codes, scale, zero_point):
    return (codes.astype(np.float32) - np.float32(zero_point)) * scale


def quantised(reals, tensor):
    """A tensor of the models of 'npudiff devices --check'."""
    scale, zero_point = scale_of(tensor)
    limits = np.iinfo(tensor["type"])
    with np.errstate(invalid="ignore"):
        return np.clip(np.nan_to_num(np.rint(reals / scale)) + zero_point, limits.min, limits.max).astype(tensor["type"])


def outputs_of(tensors, inputs):
    """{name: array} of what is asked for."""
    if DEFECT == "merged":
        return {name: np.zeros(t["shape"], t["type"]) for name, t in tensors.items() if name != MERGED}
    if "x0" in inputs:
        return {name: quantised(inputs["x" + name[1:]], tensor) for name, tensor in tensors.items()}
    scale, zero_point = scale_of(tensors["product"])
    product = real(inputs["a"], *INPUTS["a"]) * real(inputs["b"], *INPUTS["b"])
    return {"product": np.clip(np.rint(product / scale) + zero_point, 0, 255).astype(np.uint8)}


def spoil(outputs, tensors):
    """The list of (name, type, array) that is sent."""
    rows = [[name, str(array.dtype), array] for name, array in outputs.items()]
    last = rows[-1]
    if DEFECT == "reals":
        rows = [[name, "float32", real(array, *scale_of(tensors[name]))] for name, _, array in rows]
    elif DEFECT == "between":
        scale = scale_of(tensors[last[0]])[0]
        rows[-1] = [last[0], "float32", real(last[2], *scale_of(tensors[last[0]])) + np.float32(0.375) * scale]
    elif DEFECT == "nan":
        rows[-1] = [last[0], "float32", np.full(last[2].shape, np.nan, np.float32)]
    elif DEFECT == "shape":
        rows[-1] = [last[0], "uint8", last[2].reshape(-1)]
    elif DEFECT == "type":
        rows[-1] = [last[0], "int16", last[2].astype(np.int16)]
    elif DEFECT == "name":
        rows[-1][0] = "Product"
    elif DEFECT == "more":
        rows.append([last[0], "uint8", np.zeros(1 << 20, np.uint8)])
    elif DEFECT == "twice":
        rows.append(last)
    elif DEFECT == "order" and len(rows) > 1:
        rows[0][2], rows[1][2] = rows[1][2], rows[0][2]
    elif DEFECT == "fewer":
        rows.pop()
    return rows


def run(job, tensors, message, data):
    inputs, at = {}, 0
    for item in message["inputs"]:
        dtype = np.dtype(item["type"])
        n = int(np.prod(item["shape"]))
        inputs[item["name"]] = np.frombuffer(data, dtype, n, at).reshape(item["shape"])
        at += n * dtype.itemsize
    if DEFECT == "endless" or (DEFECT == "dies" and message["sample"] == 3):
        time.sleep(3600 if DEFECT == "endless" else 0)
        os._exit(9)
    if DEFECT == "chatty" and message["sample"] == 3:
        while True:
            os.write(2, b"la la " * 100000)
            time.sleep(0.005)
    if DEFECT == "program":
        print(os.spawnlp(os.P_WAIT, "true", "true"), file=sys.stderr)
    if "log" in job["options"]:
        send({"message": "log", "severity": 2, "text": f"sample {message['sample']}"})
    rows = spoil(outputs_of(tensors, inputs), tensors)
    result = {"message": "result", "sample": message["sample"], "repeat": message["repeat"],
              "outputs": [{"name": n, "type": t, "shape": list(a.shape)} for n, t, a in rows]}
    parts = b"".join(np.ascontiguousarray(a).tobytes() for _, _, a in rows)
    if DEFECT == "nameless":
        del result["sample"]
    if DEFECT == "real":
        result["sample"] = float(result["sample"])
    if DEFECT == "unasked-slow" and message["sample"] == 3: # its second answer comes when the next question was asked
        send(result, parts)
        time.sleep(0.5)
    if DEFECT == "unasked" and message["sample"] in (1, 3):
        send(result, parts)
    if DEFECT == "late-log":
        send(result, parts)
        send({"message": "log", "severity": 2, "text": f"after sample {message['sample']}"})
        return
    send(result, parts)


def answer(job):
    """The answer to the job."""
    global stays
    stays = DEFECT == "stays" and job["probes"][0]["samples"] == 1 # the trial of its end; each costs 5 s
    if DEFECT == "litters": # which a runner may do: its working folder is its own
        pathlib.Path("litter").touch()
    placement = [{"name": "mul", "op_type": "Mul", "where": "numpy"}]
    checks = [t["name"] for t in job["outputs"] if t["name"].startswith("none")]
    damaged = pathlib.Path(job["model"]).read_bytes().startswith(b"this is no model")
    if (checks or damaged) and DEFECT != "credulous":
        return {"message": "error", "stage": "load", "text": "no such tensor" if checks else "no model"}
    if DEFECT == "silent":
        return {"message": "error", "stage": "", "text": " "}
    if DEFECT == "error":
        return {"message": "error", "stage": "compile", "operator": "Mul", "text": "there is no such operator"}
    missing = ["product" if DEFECT == "withheld" else MERGED] if DEFECT in ("merged", "withheld") else []
    names = [t["name"] for t in job["outputs"]]
    if DEFECT == "wordy-nodes":
        placement[0]["where"] = "w" * 70000
    return {"message": "ready", "placement": placement,
            "missing": [{"name": name, "reason": "it was merged"} for name in missing if name in names]}


def main():
    if DEFECT == "rubbish":
        print("Loading libraries ...", flush=True)
        time.sleep(1)
        return
    if DEFECT == "gone":
        sys.exit(7)
    if DEFECT == "mute":
        time.sleep(3600)
    if DEFECT == "endless-json": # a frame that says it has 4 GiB of JSON
        os.write(1, HEADER.pack(b"NDR1", 0xffffffff, 0))
    send({"message": "hello", "protocol": {"version": 7, "old": 1}.get(DEFECT, 2), "name": DEFECT, "version": "1",
          "versions": {"numpy": np.__version__, **({"words": "w" * 70000} if DEFECT == "wordy" else {})}, "options": ["log"]})
    job, tensors = None, {}
    while True:
        message, data = receive()
        if message["message"] == "job":
            job, tensors = message, {t["name"]: t for t in message["outputs"]}
            send(answer(job))
        elif message["message"] == "run":
            run(job, tensors, message, data)


main()
