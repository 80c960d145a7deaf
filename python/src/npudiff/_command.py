"""Runs the command and reads what it prints with --json."""
import dataclasses
import html
import json
import os
import pathlib
import shutil
import subprocess
import sys

from npudiff._errors import TroubleError, error_for

_BESIDE = pathlib.Path(__file__).resolve().parent / "bin" / "npudiff"


def command_path():
    """The program: $NPUDIFF, else the one that this package carries, else the one in PATH."""
    found = os.environ.get("NPUDIFF") or (str(_BESIDE) if _BESIDE.exists() else shutil.which("npudiff"))
    if not found:
        raise FileNotFoundError("the command npudiff is neither in this package nor in PATH; set NPUDIFF to its path")
    return found


def main():
    """The command itself, for the script `npudiff`."""
    path = command_path()
    os.execv(path, [path, *sys.argv[1:]])


class Result(dict):
    """What a command prints with --json, and its exit code. `verdict` is the word of the command. It prints as one
    line; a notebook shows its rows as a table."""

    def __init__(self, document, exit_code):
        super().__init__(document)
        self.exit_code = exit_code

    @property
    def verdict(self):
        return self.get("verdict")

    @property
    def passed(self):
        return self.exit_code == 0

    @property
    def rows(self):
        """The result as flat dicts: of a comparison one for each tensor and test, of an explanation one for each
        layer that is faulty or unexplained, of others their first list."""
        if "tensors" in self:
            return [{**{k: tensor.get(k) for k in _OF_TENSOR}, "device": self["devices"][pair["test"]]["label"],
                     **{k: pair.get(k) for k in _OF_PAIR}} for tensor in self["tensors"] for pair in tensor["pairs"]]
        devices = [d for d in self.get("devices", []) if isinstance(d, dict)]
        if any("faulty" in device for device in devices):
            return [{"device": device["label"], "verdict": state, **_flat(layer)} for device in devices
                    for state in ("faulty", "unexplained") for layer in device.get(state, [])]
        lists = (v for v in self.values() if isinstance(v, list) and v and isinstance(v[0], dict))
        return [_flat(row) for row in next(lists, [])]

    def to_dataframe(self):
        """`rows` as a pandas.DataFrame."""
        import pandas
        return pandas.DataFrame(self.rows)

    def __repr__(self):
        return f"<npudiff {self.get('kind', 'result')}: {self.verdict}, exit code {self.exit_code}{_details(self)}>"

    def _repr_html_(self):
        rows = self.rows[:_MAX_ROWS]
        cells = [[html.escape("" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v)) for v in row.values()]
                 for row in rows]
        head = "".join(f"<th>{html.escape(k)}</th>" for k in (rows[0] if rows else ()))
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
        left = len(self.rows) - len(rows)
        return (f"<p>{html.escape(repr(self)[1:-1])}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
                + (f"<p>and {left} more</p>" if left > 0 else ""))

    def check(self):
        """The result itself when it passed; else the exception of its exit code."""
        if not self.passed:
            raise error_for(self.exit_code, f"the verdict is '{self.verdict}'{_details(self)}")
        return self


_OF_TENSOR = ("name", "op_types", "dtype", "gate")
_OF_PAIR = ("verdict", "elements", "differing", "share", "max_lsb", "max_abs", "sqnr_db", "failing")
_MAX_ROWS = 50


def _flat(row):
    return {k: v for k, v in row.items() if not isinstance(v, (dict, list))}


def _details(result):
    """What fails its gate, or the first difference, of a comparison, or the faulty layers of an explanation, in words."""
    failing = [row for row in result.rows if row["failing"]] if result.get("gated") else []
    if failing:
        row = max(failing, key=lambda row: row["failing"] / row["elements"])
        more = f", and {len(failing) - 1} more fail theirs" if len(failing) > 1 else ""
        return f": '{row['name']}' fails {row['gate']} on {row['device']} in {row['failing']} of {row['elements']} values{more}"
    first = result.get("first_difference")
    if isinstance(first, dict):
        return f": the first difference is at '{first.get('tensor')}'"
    told = []
    for device in result.get("devices", []):
        if isinstance(device, dict) and "verdict" in device:
            layers = [layer["layer"] for layer in device.get("faulty", []) + device.get("unexplained", [])]
            told.append(f"{device['uri']} is {device['verdict']}" + (f" at {', '.join(layers)}" if layers else ""))
    return ": " + "; ".join(told) if told else ""


def _flags(options):
    """Keyword arguments as options: repeats=3 is --repeats 3, prefixes=True is --prefixes, a list repeats one."""
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                flags.append(flag)
            elif one is not None and one is not False:
                flags += [flag, os.fspath(one) if isinstance(one, os.PathLike) else str(one)]
    return flags


def run(command, *arguments, **options):
    """Runs `npudiff COMMAND ARGUMENTS OPTIONS --json`. A verdict of any kind is a Result; an error of the command is
    the exception of its exit code."""
    line = [command_path(), command, *_flags(options), "--json", *map(os.fspath, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip() or f"npudiff {command} gave no result, exit code {done.returncode}"
        raise error_for(done.returncode, said.splitlines()[-1]) from None
    error = document.get("error")
    # Beside what could be done; that of a device that failed is part of the result.
    if error and (document.get("kind") == "error" or done.returncode == TroubleError.exit_code):
        raise error_for(done.returncode, error["message"], error["id"], error["object"])
    return Result(document, done.returncode)


@dataclasses.dataclass(frozen=True)
class Captured:
    """A capture that was made: the device as it was named, its URI, the file, its status ("complete", "partial" or
    "failed"), and the reason of a failure."""

    device: str
    uri: str
    path: pathlib.Path
    status: str
    reason: str

    def __fspath__(self):
        return str(self.path)


def capture(model, devices, probes, output, *, check=True, **options):
    """Captures the model on each device with these probes into the folder `output` (or the file, when it ends in .h5).

    Gives a Captured for each device. A device that fails is DeviceError, unless check=False: then its capture is
    among the others and says so."""
    result = run("capture", model, device=list(devices), probe=list(probes), output=output, **options)
    error = result.get("error")
    if check and error:
        raise error_for(result.exit_code, error["message"], error["id"], error["object"])
    return [Captured(c["device"], c["uri"], pathlib.Path(c["capture"]), c["status"], c["reason"])
            for c in result["captures"]]


def compare(reference, *tests, **options):
    """Compares captures with the first one. Options are gates (bitwise=True, lsb=1, atol=1e-3) and what else
    `npudiff compare --help` lists."""
    return run("compare", reference, *tests, **options)


def explain(captures, *, quantised=None, **options):
    """Explains captures of the quantised model: which devices are healthy, and which layer of the others is not."""
    return run("explain", *captures, quantised=quantised, **options)
