"""Rows of the study, one JSON object a line: what was drawn, and what npudiff said of it. The table is made from rows alone."""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]


def commit():
    """The last commit that changed the program: the rows do not say more of it."""
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h", "--abbrev=12", "--", "src", "include"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode().strip() or "unknown"


def read(path):
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def append(path, row):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def layer_row(layer, fault, hidden):
    """What the table needs of one layer. `hidden`: where it ran by the values alone."""
    place = layer["execution"]["verdict"] if layer["execution"] else None
    return {"name": layer["name"], "op": layer["op_type"], "is_layer": layer["is_layer"], "state": layer["state"], "why": layer["why_follows"],
            "covered": layer["is_covered"], "unexplained": layer["unexplained"], "values": layer["values"], "certainty": layer["certainty"],
            "where": place, "where_hidden": hidden, "evidence": layer["evidence"], "defect": layer["known_defect"],
            "kind": fault.get("kind") if fault else None, "text": fault.get("text") if fault else None, "why_not": layer["why_not"]}


def explained_row(done, hidden):
    """Of one `explain` (Result) and its repetition without the placement, if there is one."""
    if not done.document or not done.document.get("devices"):
        return {"explain_code": done.code, "explain_message": done.message, "verdict": None, "layers": []}
    device = done.document["devices"][0]
    row = {"explain_code": done.code, "verdict": device["verdict"], "failure": device["failure"], "layers": []}
    if device["failure"] or "layers" not in device:
        return row
    faults = {fault["layer"]: fault for fault in device["faulty"] + device["unexplained"]}
    without = {}
    if hidden and hidden.document and hidden.document.get("devices") and "layers" in hidden.document["devices"][0]:
        told = hidden.document["devices"][0]
        without = {layer["name"]: layer["execution"]["verdict"] if layer["execution"] else None for layer in told["layers"]}
        row["execution_hidden"] = told["execution"]["verdict"]
    row.update(execution=device["execution"]["verdict"], expected=device["expected_arithmetic"], arithmetic=device["arithmetic"],
               is_refuted=device["is_refuted"], findings=[[x["tensor"], x["kind"], x["text"]] for x in device["findings"]],
               layers=[layer_row(layer, faults.get(layer["name"]), without.get(layer["name"])) for layer in device["layers"]])
    return row
