"""What the files of tools/studies/readings say, by a reader that shares no code with npudiff."""
import hashlib
import json
import math
import re
import struct

import yaml

MOST_DATA_BYTES = 1 << 20 # as reading.c has it


class Refused(Exception):
    """The script cannot read it either."""


# ---- JSON, as RFC 8259 has it, without members that occur twice


def members(pairs):
    if len({name for name, _ in pairs}) != len(pairs):
        raise Refused("a member twice")
    return dict(pairs)


def refuse(constant):
    raise Refused(constant)


def parse_json(data):
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=members, parse_constant=refuse)
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise Refused(str(problem)) from None


def same(a, b):
    """Equal, with the types of JSON: 1 is neither true nor 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


# ---- what the bytes say


def say_frames(data):
    frames, at = [], 0
    while data[at:at + 4] == b"NDR1" and len(data) - at >= 16:
        n_json, n_data = struct.unpack_from("<IQ", data, at + 4)
        at += 16
        if n_data > MOST_DATA_BYTES or len(data) - at < n_json + n_data:
            break
        try:
            message = parse_json(data[at:at + n_json])
        except Refused:
            break
        if not isinstance(message, dict):
            break
        frames.append({"message": message, "data": list(data[at + n_json:at + n_json + n_data])})
        at += n_json + n_data
    return frames


def say_took(data):
    lines = data.split(b"\n")
    if len(lines) != 9 or lines[8]:
        raise Refused("eight lines")
    fields = dict(line.split(b" ", 1) for line in lines[:8] if b" " in line)
    names = [b"task", b"model", b"device", b"uri", b"runs", b"seconds", b"memory_bytes", b"bytes"]
    if sorted(fields) != sorted(names):
        raise Refused("other fields")
    whole = {n.decode(): int(fields[n]) for n in (b"runs", b"memory_bytes", b"bytes")}
    return {"task": fields[b"task"].decode("latin-1"), **{n.decode(): list(fields[n]) for n in (b"model", b"device", b"uri")},
            **whole, "seconds": float(fields[b"seconds"])}


def text_of(node):
    if not isinstance(node, yaml.ScalarNode):
        raise Refused("no text")
    return node.value


def mapping(node):
    if not isinstance(node, yaml.MappingNode):
        raise Refused("no mapping")
    return members([(text_of(key), value) for key, value in node.value])


def texts_of(node):
    return [text_of(n) for n in node.value] if isinstance(node, yaml.SequenceNode) else [text_of(node)]


def join(folder, path):
    return path if path.startswith("/") else f"{folder}/{path}"


def say_model(node, folder):
    keys = mapping(node)
    quantised = text_of(keys.pop("quantised"))
    base = quantised.rsplit("/", 1)[-1]
    out = {"quantised": join(folder, quantised), "float": None, "dims": [],
           "name": base[:-5] if base.endswith(".onnx") and base != ".onnx" else base}
    for key, value in keys.items():
        if key == "name":
            out["name"] = text_of(value)
        elif key == "float":
            out["float"] = join(folder, text_of(value))
        elif key == "probes":
            out["probes"] = [re.sub(r"^([^=]*)=(.*?)(,labels=)?(?(3)(.*))$", lambda m: m[1] + "=" + join(folder, m[2]) +
                                    (m[3] + join(folder, m[4]) if m[3] else ""), p, flags=re.DOTALL) for p in texts_of(value)]
        elif key == "dims":
            out["dims"] = texts_of(value)
        else:
            raise Refused(key)
    return out


def say_devices(node, folder):
    if isinstance(node, yaml.ScalarNode):
        keys = {"device": node}
    else:
        keys = mapping(node)
    prepared = [[name, join(folder, text_of(file))] for name, file in mapping(keys.pop("prepared")).items()] if "prepared" in keys else []
    if "device" in keys:
        uri = text_of(keys.pop("device"))
        uris = ["emu:" + join(folder, uri[4:]) if uri.startswith("emu:") and uri.endswith(".yaml") else uri]
    else:
        chipsets = texts_of(keys.pop("chipsets"))
        runtimes = ["@" + r for r in texts_of(keys.pop("runtimes"))] if "runtimes" in keys else [""]
        options = ["" if o == "none" else "?" + o for o in texts_of(keys.pop("options"))] if "options" in keys else [""]
        uris = [("" if c == "cpu" else "htp-sim:") + c + r + o for c in chipsets for r in runtimes for o in options]
    if keys:
        raise Refused(str(keys))
    return [[uri, prepared] for uri in uris]


def say_rule(node, defaults):
    out = {"models": [], "devices": [], "tensors": [], "probes": [], "allow": [], "max": None, "metric": None, "min": None, "warn": None,
           "fail": None, "reason": None, "owner": None, "until": None, **defaults}
    for key, value in mapping(node).items():
        key = {"edges": "tensors", "reference": "to"}.get(key, key)
        if key in ("models", "devices", "tensors", "probes", "allow"):
            out[key] = texts_of(value)
        elif key in ("max", "min", "warn", "fail", "margin", "confidence", "power"):
            out[key] = float(text_of(value))
        else:
            out[key] = text_of(value)
    given = (out["warn"], out["fail"])
    out["warn"] = given[0] if given[0] is not None else min(0.05, math.inf if given[1] is None else given[1])
    out["fail"] = given[1] if given[1] is not None else max(0.15, out["warn"])
    if out["gate"] == "target-error" and out["metric"] is None:
        out["metric"] = "mean-error"
    return out


def compose(data):
    """By PyYAML's own scanner, which refuses tabs in plain texts and '?' in lists; where libyaml reads them, by that."""
    for loader in (yaml.BaseLoader, getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
        try:
            return yaml.compose(data, Loader=loader)
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            why = str(problem)
    raise Refused(why)


def say_campaign(data, folder, name):
    root = compose(data)
    keys = mapping(root)
    out = {"name": name, "output": None, "tensors": "all", "repeats": 0, "margin": 0.01, "confidence": 0.95, "power": 0.9,
           "reference": "quantised", "explain": False}
    for key, value in keys.items():
        key = "tensors" if key == "edges" else key
        if key in ("margin", "confidence", "power"):
            out[key] = float(text_of(value))
        elif key == "repeats":
            out[key] = int(text_of(value))
        elif key == "explain":
            out[key] = {"yes": True, "true": True, "no": False, "false": False}[text_of(value)]
        elif key == "output":
            out[key] = join(folder, text_of(value))
        elif key not in ("models", "devices", "policy"):
            out[key] = text_of(value)
    defaults = {"to": out["reference"], **{k: out[k] for k in ("margin", "confidence", "power")}}
    out["models"] = [say_model(n, folder) for n in keys["models"].value]
    out["devices"] = [d for n in keys["devices"].value for d in say_devices(n, folder)]
    out["policy"] = [say_rule(n, defaults) for n in keys["policy"].value]
    return out


def as_bytes(value):
    """Texts as reading.c prints them."""
    if isinstance(value, str):
        return list(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list):
        return [as_bytes(v) for v in value]
    return {k: v if k == "gate" else as_bytes(v) for k, v in value.items()} if isinstance(value, dict) else value


def digest_of(document):
    content = {k: v for k, v in document.items() if k != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
