"""Holds npudiff explain's verdicts against devices that are healthy, and against the same captures with one layer spoilt.

tools/studies/score_healthy make DIR [--n N] [--seed S]   draws N random networks as quantisers emit them and captures each on cpu, gen1,
                       gen3 and gen5 of the simulator. Needs onnx and onnxruntime (tools/oracles/make_models.requirements.txt).
tools/studies/score_healthy healthy DIR        explains every capture: no layer of a healthy device may be called faulty; how many are
                       unexplained is reported.
tools/studies/score_healthy faults DIR [--n N] [--seed S]   spoils the values of one layer in copies of captures of the simulator (stale,
                       zero window, permuted channels, shifted, clamped, another scale, all zero, all values mixed up), and counts how often explain
                       names that layer. What reads the layer is not in the copy: it would be at odds with the layer, too.

Exit code 0: no false alarm, and at least 90 % of the spoilt layers named; 1: not so; 2: trouble."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

NPUDIFF = os.environ.get("NPUDIFF", "npudiff")
DEVICES = {"cpu": "cpu", "gen1": "htp-sim:gen1", "gen3": "htp-sim:gen3", "gen5": "htp-sim:gen5"}
MIN_NAMED = 0.9


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/studies/score_healthy", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("command", choices=["make", "healthy", "faults"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--n", type=int, default=40, help="networks, or spoilt captures (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first network, or of the faults (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="at once; changes no result (%(default)s)")
    parser.add_argument("--devices", default="", metavar="NAMES", help="with commas (all; of faults gen1,gen3)")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every layer that is not explained")
    return parser.parse_args(arguments)


# ---- networks and their captures ----


def make(options):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracles"))
    import healthy_networks

    for seed in range(options.seed, options.seed + options.n):
        folder = options.folder / str(seed)
        if (folder / "about.json").exists():
            continue
        about = healthy_networks.make(seed, folder)
        names = [d for name in DEVICES for d in ("-d", DEVICES[name])]
        done = subprocess.run([NPUDIFF, "capture", folder / "quantised.onnx", *names, "-p", f"x={folder / 'inputs.npz'}", "-q",
                               "-o", folder], capture_output=True, text=True, timeout=1200)  # fmt: skip
        about["exit_code"] = done.returncode
        (folder / "about.json").write_text(json.dumps(about))
        print(f"{seed}: {about['type']}, {len(about['operators'])} operators, exit code {done.returncode}", flush=True)


def explain(folder, capture):
    """The device of a capture, as npudiff explain has it."""
    done = subprocess.run([NPUDIFF, "explain", "--quantised", folder / "quantised.onnx", "--float", folder / "float.onnx", capture,
                           "--threads", "1", "--json"], capture_output=True, text=True, timeout=600)  # fmt: skip
    if not done.stdout:
        raise RuntimeError(f"{capture}: exit code {done.returncode}: {done.stderr.strip()[:300]}")
    return json.loads(done.stdout)["devices"][0]


def captures(options, names):
    found = []
    for folder in sorted(options.folder.iterdir(), key=lambda f: (len(f.name), f.name)):
        if (folder / "about.json").exists():
            found += [(folder, folder / f"{name}.h5", name) for name in names if (folder / f"{name}.h5").exists()]
    return found


# ---- healthy devices ----


def study_healthy(options):
    names = options.devices.split(",") if options.devices else list(DEVICES)
    verdicts, layers, kinds, alarms, defects = collections.Counter(), collections.Counter(), collections.Counter(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = captures(options, names)
        for (folder, _, name), device in zip(found, pool.map(lambda c: explain(c[0], c[1]), found)):
            code = json.loads((folder / "about.json").read_text())["type"]
            verdicts[name, device["verdict"]] += 1
            unknown = [row for row in device["faulty"] if row["known_defect"] is None]  # what the SDK computes wrongly is no alarm
            alarms += len(unknown) > 0
            defects += len(device["faulty"]) - len(unknown)
            for unit in device["layers"]:
                if unit["is_layer"]:
                    layers[name, code, unit["state"]] += 1
            for row in device["faulty"]:
                print(f"{folder.name} {name} {code}: FAULTY '{row['layer']}' ({row['op_type']}), {row['kind']}: {row['evidence']}")
            for row in device["unexplained"]:
                kinds[code, row["op_type"]] += 1
                if options.verbose:
                    print(f"{folder.name} {name} {code}: unexplained '{row['layer']}' ({row['op_type']}): {row['evidence']}")
    for key in sorted(verdicts):
        print(f"{key[0]:5} {key[1]:12} {verdicts[key]:5} networks")
    for key in sorted(layers):
        print(f"{key[0]:5} {key[1]:7} {key[2]:12} {layers[key]:5} layers")
    print("unexplained:", ", ".join(f"{code} {op} {n}" for (code, op), n in kinds.most_common(20)))
    print(f"layers with a known defect of the SDK: {defects}")
    print(f"false alarms: {alarms} of {sum(verdicts.values())} captures")
    return 0 if alarms == 0 else 1


# ---- spoilt layers ----


def stale(rng, x, low, high):
    return x[[0, *range(len(x) - 1)]]


def window(rng, x, low, high):
    y = x.reshape(len(x), -1).copy()
    n = y.shape[1]
    count = max(n // int(rng.integers(2, 9)), min(n, 16))
    first = int(rng.integers(n - count + 1))
    y[:, first : first + count] = 0
    return y.reshape(x.shape)


def permute(rng, x, low, high):
    axis = 2 if x.ndim == 5 else x.ndim - 1
    return x.take(rng.permutation(x.shape[axis]), axis)


def shift(rng, x, low, high):
    import numpy as np

    y = x.reshape(len(x), -1)
    return np.roll(y, int(rng.integers(1, min(y.shape[1], 33))), 1).reshape(x.shape)


def clamp(rng, x, low, high):
    import numpy as np

    a, b = np.quantile(x, [rng.uniform(0.05, 0.2), rng.uniform(0.8, 0.95)])
    return x.clip(int(a), int(b))


def scale(rng, x, low, high):
    import numpy as np

    return np.clip(np.rint(x * rng.choice([0.5, 0.8, 1.25])), low, high)


def zero(rng, x, low, high):
    return x * 0


def noise(rng, x, low, high):
    """Nothing of what it should be: each value is another one's."""
    return rng.permuted(x.reshape(-1)).reshape(x.shape)


FAULTS = {"stale": stale, "noise": noise, "window": window, "permute": permute, "shift": shift, "clamp": clamp, "scale": scale, "zero": zero}


def seal(file):
    """Makes the digests of a capture that was changed those of what it holds now."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
    from write_capture import seal as seal_all

    seal_all(file)


def spoil(source, copy, word, rng, readers):
    """Writes the copy; the layer that was spoilt and the share of its values that changed, or None."""
    import h5py
    import numpy as np

    shutil.copyfile(source, copy)
    with h5py.File(copy, "r+") as file:
        types = {n.decode(): t.decode() for n, t in zip(file["edges/name"][:], file["edges/op_types"][:])}
        if "probes/x/outputs" not in file:  # the device failed
            return None
        outputs = file["probes/x/outputs"]
        names = [n for n in outputs if types[n] != "input"]
        name = names[int(rng.integers(len(names)))]
        data = outputs[name][()]
        top = np.iinfo(data.dtype)
        spoilt = FAULTS[word](rng, data.astype(np.int64), top.min, top.max).astype(data.dtype)
        # What a few values by a few steps show is nothing that anyone could tell from arithmetic.
        away = np.abs(spoilt.astype(np.int64) - data.astype(np.int64)) > (2 if data.dtype.itemsize == 1 else 512)
        if away.sum() < 16 or away.mean() < 0.01:
            return None
        outputs[name][...] = spoilt
        left = list(readers(name))
        while left:  # what has no quantiser of its own is read on
            reader = left.pop()
            if reader in outputs:
                del outputs[reader]
            elif reader not in types:
                left += readers(reader)
        seal(file)
        return name, types[name], float(away.mean())


def readers_of(folder):
    """Which edges read an edge, by the names that the float model gives them."""
    about = json.loads((folder / "about.json").read_text())
    return lambda name: about["readers"].get(name, [])


def study_faults(options):
    import numpy as np

    names = options.devices.split(",") if options.devices else ["gen1", "gen3"]
    found = captures(options, names)
    counts, missed = collections.Counter(), []
    words = list(FAULTS)
    with tempfile.TemporaryDirectory() as scratch:

        def one(k):
            rng = np.random.default_rng([options.seed, k])
            word = words[k % len(words)]
            for _ in range(50):
                folder, source, name = found[int(rng.integers(len(found)))]
                copy = pathlib.Path(scratch) / f"{k}.h5"
                spoilt = spoil(source, copy, word, rng, readers_of(folder))
                if spoilt is not None:
                    device = explain(folder, copy)
                    copy.unlink()
                    return word, f"{folder.name} {name}", spoilt, device
            return None

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(one, range(options.n)):
                if result is None:
                    continue
                word, where, (layer, op, share), device = result
                faulty = [r["layer"] for r in device["faulty"]]
                state = "named" if faulty[:1] == [layer] else "beside" if layer in faulty else \
                    "unexplained" if layer in [r["layer"] for r in device["unexplained"]] else "missed"  # fmt: skip
                counts[word, state] += 1
                kinds = {r["layer"]: r["kind"] for r in device["faulty"] + device["unexplained"]}
                if state != "named" or options.verbose:
                    missed.append(f"{where}: {word} at '{layer}' ({op}), {100 * share:.3g}% of its values: {state}, "
                                  f"{kinds.get(layer)}; faulty: {', '.join(faulty[:4])}")  # fmt: skip
    print("\n".join(missed))
    total = collections.Counter()
    for word in words:
        row = {s: counts[word, s] for s in ("named", "beside", "unexplained", "missed")}
        total.update(row)
        print(f"{word:8}", ", ".join(f"{n} {s}" for s, n in row.items()))
    n = sum(total.values())
    print(f"right layer named: {total['named']} of {n}; exit code not 0: {n - total['missed']} of {n}")
    return 0 if total["named"] >= MIN_NAMED * n else 1


def main():
    options = parse(sys.argv[1:])
    if options.command == "make":
        return make(options) or 0
    return study_healthy(options) if options.command == "healthy" else study_faults(options)


if __name__ == "__main__":
    sys.exit(main())
