"""One fault for each network: a layer of the model is changed, the simulator runs the changed model, and `explain` judges its values against
the model without the fault. A capture names the model that it was made of, so the values go through `npudiff import numpy`."""
import pathlib
import tempfile

import numpy as np
import onnx

import healthy
import imported
import mutations
import program
import rows

DEVICES = ["gen1", "gen3"]
FAR = {8: 8, 16: 8 * 256}   # codes by which a value must change to count; the same share of the range in both types
LEAST_FAR = 8               # values that must change so far
MOST_TRIALS = 8             # mutations that are tried until one shows


def told(done):
    """What `explain` says: verdict, faulty and unexplained layers."""
    if not done.document or not done.document.get("devices"):
        return {"verdict": None, "message": done.message}
    device = done.document["devices"][0]
    keys = ("layer", "op_type", "kind", "certainty", "unexplained", "differing_share")
    return {"verdict": device["verdict"], "failure": device["failure"],
            "faulty": [{key: fault[key] for key in keys} for fault in device["faulty"]],
            "unexplained": [{key: fault[key] for key in keys} for fault in device["unexplained"]]}


def drawn_mutations(path, random):
    """(kind, index of the layer) in the order in which they are tried: first the layer, then what can happen to it."""
    n_layers = len(mutations.Model(path).layers())
    kinds = list(mutations.MUTATIONS)
    for _ in range(200 if n_layers else 0):
        yield kinds[int(random.integers(len(kinds)))], int(random.integers(n_layers)), int(random.integers(1 << 31))


def layer_name(node, model, names):
    """What captures call the output of a node."""
    quantiser = model.quantiser_of(node)
    candidates = [node.output[0]] + [name for reader in model.readers[quantiser.output[0]] for name in reader.output]
    return next((name for name in candidates if name in names), None)


def changed_values(folder, device, kind, index, seed, healthy_values):
    """(row, values as if the model without a fault had given them) where the fault shows; None where it does not."""
    model = mutations.Model(folder / "model.onnx")
    node = model.layers()[index]
    name = layer_name(node, model, healthy_values)
    op_type = node.op_type
    if name is None or not mutations.MUTATIONS[kind][0](model, node, np.random.default_rng(seed)):
        return None
    onnx.save(model.proto, folder / "changed.onnx")
    capture, _ = program.capture(folder / "changed.onnx", device, folder / "samples.npz", folder / "changed.h5")
    if capture["status"] != "complete":
        return {"kind": kind, "layer": name, "op": op_type, "not_run": capture["reason"]}, None
    values = imported.dump(folder / "changed.h5")
    if mutations.INSERTED in values:
        values[name] = values[mutations.INSERTED]
    if name not in values:
        left = next((x["reason"] for x in capture["left_out"] if x["tensor"] == name), "the capture has not the tensor")
        return {"kind": kind, "layer": name, "op": op_type, "not_run": left}, None
    values = {key: array for key, array in values.items() if key in healthy_values}
    difference = np.abs(values[name].astype(np.int64) - healthy_values[name].astype(np.int64))
    n_far = int((difference >= FAR[8 * values[name].dtype.itemsize]).sum())
    row = {"kind": kind, "layer": name, "op": op_type, "n_far": n_far, "largest": int(difference.max()), "n_values": int(difference.size)}
    return (row, values) if n_far >= LEAST_FAR and set(values) == set(healthy_values) else None


def judged(row, result):
    """right: the layer is the first or among the faulty; also: unexplained with gross errors does not count."""
    if result["verdict"] is None:
        return "no answer"
    named = [fault["layer"] for fault in result.get("faulty", [])]
    if named:
        return "right" if named[0] == row["layer"] else "among" if row["layer"] in named else "wrong"
    return "unexplained" if row["layer"] in [fault["layer"] for fault in result["unexplained"]] else "silent"


def one_device(folder, device, seed):
    made, _ = program.capture(folder / "model.onnx", device, folder / "samples.npz", folder / "healthy.h5")
    if made["status"] != "complete":
        return {"outcome": "no healthy capture", "reason": made["reason"]}
    values = imported.dump(folder / "healthy.h5")
    before = program.explain(folder / "model.onnx", folder / "healthy.h5")
    random = np.random.default_rng([20261126, seed])
    not_run, n_trials = [], 0
    for kind, index, its_seed in drawn_mutations(folder / "model.onnx", random):
        found = changed_values(folder, device, kind, index, its_seed, values)
        if found is None and not (folder / "changed.h5").exists():
            continue   # The mutation does not fit this layer: nothing was run.
        n_trials += 1
        (folder / "changed.h5").unlink(missing_ok=True)
        if found is not None and found[1] is not None:
            row, changed = found
            layer = next((x for x in before.document["devices"][0]["layers"] if x["name"] == row["layer"]), None)
            row.update(known=bool(layer) and layer["state"] == "follows", state=layer and layer["state"], covered=layer and layer["is_covered"],
                       told=told(imported.explain(folder, "faulty", changed, device)), control=told(imported.explain(folder, "control", values, device)),
                       own=told(before), not_run=not_run)
            row["outcome"] = judged(row, row["told"])
            named = [fault["kind"] for fault in row["told"].get("faulty", []) if fault["layer"] == row["layer"]]
            row["named_kind"] = named[0] if named else None
            return row
        if found is not None:
            not_run.append(found[0])
        if n_trials >= MOST_TRIALS:
            break
    return {"outcome": "no fault showed", "not_run": not_run}


def study(seed, path, keep=None):
    device = DEVICES[seed % len(DEVICES)]
    row = {"part": "faults", "seed": seed, "device": device, "commit": rows.commit()}
    with tempfile.TemporaryDirectory(prefix="strangers-") as scratch:
        folder = pathlib.Path(keep) / f"fault-{seed}" if keep else pathlib.Path(scratch)
        try:
            _, habits = healthy.write(seed, folder)
        except Exception as error:   # noqa: BLE001: the quantiser is not ours; the table lists what it refused
            row["refused"] = f"{type(error).__name__}: {error}"[:300]
            rows.append(path, row)
            return row
        row.update(habits=vars(habits), **one_device(folder, device, seed))
    rows.append(path, row)
    return row
