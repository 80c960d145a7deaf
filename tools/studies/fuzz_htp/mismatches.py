"""One network on one device: which of its layers have values that npudiff's programs do not give, and what becomes of them."""
import json

import minimise
import program
import rows
import texts

MOST_OF_A_KIND = 2    # mismatches of one layer type, types and device that are made small; of others only the number is kept. Chosen
CAPTURE_S, EXPLAIN_S = 120, 300


def capture(model, device, samples, path, *arguments, probe=program.PROBE):
    """(the object of 'captures', or what stands for it; Result)"""
    done = program.npudiff("capture", model, "-d", device, "-p", f"{probe}={samples}", "-o", path, "-f", "--time-limit", CAPTURE_S, *arguments,
                           limit_s=CAPTURE_S + 60)
    if done.document and done.document.get("captures"):
        return done.document["captures"][0], done
    return {"status": "hung" if done.code is None else "crashed", "stage": "", "reason": done.message}, done


def explained(model, path):
    """The device of an explanation, or None."""
    done = program.npudiff("explain", "--quantised", model, path, limit_s=EXPLAIN_S)
    devices = done.document.get("devices") if done.document else None
    return devices[0] if devices and "layers" in devices[0] else None


def told(device, layer):
    """What explain said of a layer: enough to sort it."""
    fault = next((f for f in device["faulty"] + device["unexplained"] if f["layer"] == layer["name"]), {})
    return {"layer": layer["name"], "op": layer["op_type"], "state": layer["state"], "unexplained": layer["unexplained"], "values": layer["values"],
            "covered": layer["is_covered"], "evidence": layer["evidence"], "kind": fault.get("kind"),
            "defect": layer["known_defect"], "largest": (layer["introduced"] or {}).get("max")}


def wrong_layers(device):
    """Layers with values of their own that nothing explains, and layers that are called faulty, in the order of the graph."""
    return [told(device, layer) for layer in device["layers"] if layer["is_layer"] and (layer["unexplained"] or layer["is_faulty"])]


def known(out):
    """{finding: its record}, from their folders."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted((out / "findings").glob("*/finding.json"))}


def times_made_small(out, seen):
    """Mismatches of this kind that became a small model."""
    return sum(m["seen"] == seen and m["made"] for row in rows.read(out / "rows.jsonl") for m in row.get("mismatches", []))


def handle(out, seed, folder, device, found, mismatch):
    """A mismatch as a row: the finding that it belongs to, a new one or one that is there. `found`: what explain said of the device."""
    seen = [device, mismatch["op"], minimise.types_of(folder / "model.onnx"), mismatch["state"], mismatch["kind"]]
    if times_made_small(out, seen) >= MOST_OF_A_KIND:
        return dict(mismatch, seen=seen, made=False, finding="counted")
    small = minimise.difference(out, folder, device, found, mismatch)
    name = texts.keep(out, seed, device, small, known(out))
    return dict(mismatch, seen=seen, made=True, finding=name)


def handle_failure(out, seed, folder, device, captured):
    failure = {"op": "", "state": captured["status"], "kind": captured["stage"], "reason": captured["reason"]}
    seen = [device, texts.without_numbers(captured["reason"] or ""), captured["status"], captured["stage"]]
    if times_made_small(out, seen) >= MOST_OF_A_KIND:
        return dict(failure, seen=seen, made=False, finding="counted")
    small = minimise.failure(out, folder, device, failure)
    return dict(failure, seen=seen, made=True, finding=texts.keep(out, seed, device, small, known(out)))


def look(out, seed, folder, device):
    """The row of a network on a device."""
    path = folder / "device.h5"
    captured, done = capture(folder / "model.onnx", device, folder / "samples.npz", path)
    row = {"status": captured["status"], "verdict": None, "layers": 0, "explained": 0, "seconds": done.seconds, "processor_s": done.processor_s}
    if captured["status"] != "complete":
        return dict(row, mismatches=[handle_failure(out, seed, folder, device, captured)])
    found = explained(folder / "model.onnx", path)
    if found is None:
        return dict(row, verdict="not explained", mismatches=[])
    layers = [layer for layer in found["layers"] if layer["is_layer"]]
    wrong = wrong_layers(found)
    row.update(verdict=found["verdict"], layers=len(layers), explained=len(layers) - len(wrong))
    return dict(row, mismatches=[handle(out, seed, folder, device, found, mismatch) for mismatch in wrong])
