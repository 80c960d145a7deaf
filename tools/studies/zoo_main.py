"""Real models out of packages, prepared and quantised as users do, then captured on the CPU and on three Snapdragon generations,
compared and explained: one row of a table for each model and kind. Rows are kept beside the models; one that is newer than npudiff
and the model is not made again.

usage: tools/studies/zoo [--models NAME,...] [--only w8a8|w8a16] [--samples N] [--work DIR] [--json FILE] [--list] [--prepare]"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import zoo_models
import zoo_packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICES = ("cpu", "htp-sim:gen1", "htp-sim:gen3", "htp-sim:gen5")
# A run of one program; the simulator needs minutes for large models, on a busy machine more.
LIMIT_SECONDS = 5400
HEAD = ("model", "tensors", "capture / bare loop, / same work", "explain / capture, MiB", "layers that follow", "false alarms", "answer")


def program():
    return os.path.abspath(os.environ["NPUDIFF"])


def bare_loop():
    return pathlib.Path(program()).parents[2] / "tools/bench/bare_loop"


class Run:
    """One program: exit code, output, seconds of processor time, and the largest resident set in MiB."""

    def __init__(self, arguments):
        self.arguments = [str(a) for a in arguments]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(self.arguments, stdout=out, stderr=err, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = self.code = os.waitstatus_to_exitcode(status)
            self.seconds, self.mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
            self.out, self.err = (self._text(f) for f in (out, err))

    @staticmethod
    def _text(file):
        file.seek(0)
        return file.read().decode("utf-8", "replace")

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    def why(self):
        lines = [line for line in (self.err or self.out).splitlines() if line.strip()]
        return f"exit code {self.code}: {' '.join(lines[:4])[:600]}"


def capture(model, inputs, out, row):
    """Captures on every device; where layers do not run on the NPU, with leave to run on the CPU. Whether the model then runs at
    all, untouched, is asked only of a model that cannot be captured."""
    arguments = [program(), "capture", model, *(a for d in DEVICES for a in ("-d", d)), "-p", f"real={inputs}",
                 "-o", out, "-q", "-f", "--time-limit", LIMIT_SECONDS]  # fmt: skip
    done = Run(arguments)
    row["capture"] = {"code": done.code, "seconds": done.seconds, "mib": done.mib, "fallback": False, "why": None}
    if done.code == 5:
        row["refused"] = done.why()
        done = Run([*arguments, "--allow-fallback"])
        row["capture"] = {"code": done.code, "seconds": done.seconds, "mib": done.mib, "fallback": True, "why": None}
    if done.code != 0:
        row["capture"]["why"] = done.why()
        row["untouched"] = Run([*arguments, "--tensors", "none", "-o", out / "untouched"]).code


def loop_seconds(*arguments):
    done = Run([bare_loop(), *arguments]) if bare_loop().exists() else None
    return done.seconds if done and done.code == 0 else None


def work_done(captured):
    """How many sessions a capture made and how many samples it ran; None where it does not say so."""
    document = Run([program(), "info", captured, "--json"]).json()
    if not document:
        return None
    runtime, probe = document["attributes"]["runtime"], document["probes"][0]
    passes = int(runtime["passes"])
    tried = int(runtime.get("sessions_tried", 0))
    return tried + passes, passes * (probe["samples"] * probe["repeats"] + probe["reruns"])


def bare(model, inputs, captures, row):
    """Seconds on each device of a bare loop over the same tensors (one session, each sample once), and of one that makes as many
    sessions and runs as many samples as the capture did; None where one session with all tensors does not run."""
    row["bare"], row["same_work"] = {}, {}
    for device in DEVICES:
        work = work_done(captures / f"{device.split(':')[-1]}.h5")
        row["bare"][device] = loop_seconds(model, device, f"real={inputs}")
        row["same_work"][device] = work and loop_seconds(model, device, f"real={inputs}", *work)


def device_row(device):
    layers = [u for u in device["layers"] if u["is_layer"]]
    known = {u["name"] for u in layers if u["known_defect"]}
    alarms = [u["layer"] for u in device["faulty"] if u["layer"] not in known]
    alarms += [u["name"] for u in layers if u["execution"] and u["execution"]["verdict"] == "not-npu" and u["state"] == "unexplained"]
    error = device["mean_squared_error"] or {}
    effects = sorted((u for u in layers if u["effect_share"]), key=lambda u: -u["effect_share"])
    return {
        "uri": device["uri"], "verdict": device["verdict"], "failure": device["failure"], "examined": device["examined"],
        "not_examined": device["not_examined"], "follow": device["follow"], "faulty": device["faulty"], "alarms": alarms,
        "defects": [u["layer"] for u in device["faulty"] if u["layer"] in known],
        "unexplained": [(u["name"], u["op_type"]) for u in layers if u["state"] == "unexplained"],
        "not_examined_types": sorted({u["op_type"] for u in layers if not u["examined"]}),
        "sqnr_db": error.get("sqnr_db"), "noise_figure_db": error.get("noise_figure_db"), "own_share": error.get("own_share"),
        "sources": device["sources"][:3],
        "greatest": [(u["name"], u["op_type"], u["effect_share"]) for u in effects[:3]],
    }  # fmt: skip


def quantisation_row(document):
    """The layer whose quantisation matters most, why, and what the outputs would gain if all remedies were taken."""
    found = (document or {}).get("quantisation")
    if not found or not found["ranked"]:
        return None
    first = next(u for u in found["layers"] if u["name"] == found["ranked"][0])
    return {"sqnr_db": found["output_sqnr_db"], "mended_sqnr_db": found["mended_sqnr_db"], "layer": first["name"],
            "op_type": first["op_type"], "cause": first["cause"], "share": first["effect_share"]}  # fmt: skip


def explain(model, folder, captures, row):
    done = Run([program(), "explain", "--quantised", model, "--float", folder / "float.onnx", *captures, "--json"])
    document = done.json()
    row["explain"] = {"code": done.code, "seconds": done.seconds, "mib": done.mib, "why": None if document else done.why()}
    row["quantisation"] = quantisation_row(document)
    row["devices"] = [device_row(d) for d in document["devices"]] if document and "devices" in document else []


def compare(captures, row):
    done = Run([program(), "compare", *captures, "--json"])
    document = done.json() or {}
    row["compare"] = {"code": done.code, "seconds": done.seconds, "groups": document.get("groups"),
                      "tensors": len(document.get("tensors", [])), "why": None if document else done.why()}  # fmt: skip


def fresh_row(path, inputs):
    """What was measured with these inputs since the program and the model were made; None otherwise."""
    made_from = [inputs.parent / "made.json", inputs, pathlib.Path(program()), *pathlib.Path(program()).parents[1].glob("libnpudiff.so*")]
    if not path.exists() or any(path.stat().st_mtime <= f.stat().st_mtime for f in made_from if f.exists()):
        return None
    row = json.loads(path.read_text())
    return row if row.get("inputs") == inputs.name else None


def captured_row(model, kind, inputs, path, keep):
    """The captures, and what they and the bare loops cost: those of an earlier row with the same inputs, or new ones."""
    out, quantised = path.parent / f"captures.{kind}", path.parent / f"{kind}.onnx"
    if keep and path.exists() and (row := json.loads(path.read_text())).get("inputs") == inputs.name:
        return row
    row = {"model": model.name, "title": model.title, "kind": kind, "inputs": inputs.name, "load": os.getloadavg()[0]}
    out.mkdir(exist_ok=True)
    capture(quantised, inputs, out, row)
    bare(quantised, inputs, out, row)
    return row


def measured(model, kind, inputs, options):
    folder = inputs.parent
    path = folder / f"row.{kind}.json"
    known = fresh_row(path, inputs)
    if known and not options.again:
        return known
    row = captured_row(model, kind, inputs, path, options.keep_captures)
    out, quantised = folder / f"captures.{kind}", folder / f"{kind}.onnx"
    captures = [p for d in DEVICES if (p := out / f"{d.split(':')[-1]}.h5").exists()]
    compare(captures, row)
    explain(quantised, folder, captures, row)
    path.write_text(json.dumps(row, indent=1))
    return row


def layer_name(name, op_type, share):
    """Names that exporters make are long: the end is enough here."""
    return f"'{name if len(name) <= 32 else '…' + name[-31:]}' ({op_type}){'' if share is None else f', {100 * share:.0f} %'}"


def answer(row):
    """Where the quantisation, and where the NPU."""
    npu = [d for d in row["devices"] if d["uri"].startswith("htp-sim") and d["sqnr_db"] is not None]
    if not npu:
        return (row["explain"]["why"] or row["capture"]["why"] or "no float reference")[:160]
    worst = max(npu, key=lambda d: d["noise_figure_db"] or 0)
    where = row.get("quantisation")
    # What explain says first: with several outputs the mean of their ratios, where a device's is that of all values together.
    said = f"quantisation {(where or worst)['sqnr_db']:.1f} dB"
    if where:
        said += f": {layer_name(where['layer'], where['op_type'], where['share'])}, {where['cause']}"
    said += f"; NPU {worst['noise_figure_db']:+.1f} dB on {worst['uri'].split(':')[1].split('@')[0]}"
    return said + (f": {layer_name(*worst['greatest'][0])}" if worst["greatest"] else "")


def cells(row):
    known, same = ([s for s in row[key].values()] for key in ("bare", "same_work"))
    loop = f"{row['capture']['seconds'] / sum(known):.2f}" if all(known) else "no bare loop on " + ", ".join(
        d.split(":")[-1] for d, s in row["bare"].items() if not s)  # fmt: skip
    loop += f", {row['capture']['seconds'] / sum(same):.2f}" if all(same) else ""
    ran = row["capture"]["code"] == 0
    npu = [d for d in row["devices"] if d["uri"].startswith("htp-sim")]
    layers = sum(d["examined"] + d["not_examined"] for d in npu)
    follow = f"{100 * sum(d['follow'] for d in npu) / layers:.1f} % of {layers // len(npu)}" if layers else ""
    explained = f"{row['explain']['seconds'] / row['capture']['seconds']:.2f}, {row['explain']['mib']:.0f}" if row["devices"] else "failed"
    return (f"{row['title']} {row['kind'].upper()}", str(row["compare"]["tensors"]), loop if ran else "failed", explained, follow,
            accused(row), answer(row) + (" (with fallback)" if row["capture"]["fallback"] else ""))  # fmt: skip


def accused(row):
    defects = sum(len(d["defects"]) for d in row["devices"])
    return str(sum(len(d["alarms"]) for d in row["devices"])) + (f" ({defects} known defects)" if defects else "")


def chosen_models(names):
    known = {m.name: m for m in zoo_models.MODELS}
    unknown = [n for n in names if n not in known]
    if unknown:
        sys.exit(f"zoo: there is no model '{unknown[0]}'; there are {', '.join(known)}")
    return [known[n] for n in names] or list(zoo_models.MODELS)


def prepared(name, *arguments):
    """In a process of its own: a program that is started counts what its parent holds into its largest resident set."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(prepare, name, *arguments).result()


def prepare(name, cache, folder, n_samples):
    return zoo_models.prepared(chosen_models([name])[0], cache, folder, n_samples)


def list_models():
    for m in zoo_models.MODELS:
        package = zoo_packages.PACKAGES[m.package]
        print(f"{m.name:16} {m.title}: {package.registry} {package.name} {package.version}, {package.licence}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="names, separated by commas (all)")
    parser.add_argument("--only", choices=zoo_models.KINDS, help="this kind of quantisation (both)")
    parser.add_argument("--samples", type=int, default=4, choices=range(1, 9), metavar="N", help="real samples, 1 to 8 (4)")
    parser.add_argument("--work", type=pathlib.Path, help="the folder of models, captures and rows (models, in the cache folder)")
    parser.add_argument("--json", type=pathlib.Path, help="also write all rows into this file")
    parser.add_argument("--list", action="store_true", help="list the models, with packages and licences")
    parser.add_argument("--prepare", action="store_true", help="only fetch and quantise")
    parser.add_argument("--again", action="store_true", help="measure again what is measured already")
    parser.add_argument("--keep-captures", action="store_true",
                        help="keep captures, and what they cost, and measure compare and explain again")  # fmt: skip
    options = parser.parse_args()
    if options.list:
        return list_models()
    cache, rows = zoo_models.cache_folder(os.environ), []
    work = options.work or cache / "models"
    if not options.prepare:
        print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    for kind in [options.only] if options.only else zoo_models.KINDS:
        for model in chosen_models([n for n in options.models.split(",") if n]):
            try:
                inputs = prepared(model.name, cache, work / model.name, options.samples)
            except zoo_packages.Missing as missing:
                print(f"zoo: {model.name} is left out: {missing}", file=sys.stderr)
                continue
            if not options.prepare:
                rows.append(measured(model, kind, inputs, options))
                print("| " + " | ".join(cells(rows[-1])) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
