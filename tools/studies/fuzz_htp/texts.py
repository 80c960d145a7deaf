"""Folders of findings, and the table of them."""
import datetime
import hashlib
import json
import re
import shutil

import mismatches
import rows
import sorting

PATH = rows.ROOT / "docs/results/fuzz-htp.md"


def without_numbers(text):
    return re.sub(r"[0-9]+", "N", text)[:120]


def signature(small):
    """Findings with the same are one: operators with attributes, types, and for a failure what was said."""
    said = "" if small["against"] else f" {small['mismatch']['state']} {small['mismatch']['kind']}"
    return " + ".join(small["operators"]) + f" {small['types']}{said}"


def name_of(small):
    last = small["operators"][-1].partition("(")[0].lower() if small["operators"] else "none"
    return f"{last}-{small['types'].replace(' ', '-')}-{hashlib.sha256(signature(small).encode()).hexdigest()[:8]}"


def values_text(small):
    if not small["values"]:
        return ""
    values = small["values"]
    lines = [f"{values['wrong']} of {values['values']} values differ, by at most {values['largest']} LSB. The first:", "", f"{'tensor':<28} {'sample':>6} {'element':<20} {'expected':>8} {'observed':>8}"]
    return "\n".join(lines + [f"{name:<28} {sample:>6} {str(at):<20} {expected:>8} {observed:>8}" for name, sample, at, expected, observed in values["rows"]]) + "\n"


def report(small, seed, owner, rule):
    """A text that stands by itself: what, where, how to see it, what was expected and observed."""
    mismatch = small["mismatch"]
    if small["against"]:
        what = f"The layer gives values that npudiff does not expect. In the network (seed {seed}): {mismatch['evidence'] or mismatch['state']}."
        expected = f"Expected: what `{small['against']}` computes (npudiff's programs for this architecture, exact sums)."
    else:
        what = f"The device {mismatch['state']} in stage '{mismatch['kind']}': {mismatch['reason']}"
        expected = "Expected: a capture."
    where = "\n".join(f"    {operator}" for operator in small["operators"])
    see = f"In this folder:\n\n    {small['command']}\n" if small["command"] else "Not made smaller: the whole network is here.\n"
    where_run = "HTP simulator on x86-64" if small["device"].startswith("htp-sim:") else "no simulator"
    return (f"{small['runtime'] or 'runtime not known'}, {where_run}, {small['chipset'] or small['device']}\n\n"
            f"Operators, {small['types']}:\n{where}\n\n{what}\n{expected}\n\n{see}\n{values_text(small)}\n"
            f"Sorted as: {owner} ({rule}).\n")


def keep(out, seed, device, small, findings):
    """Adds the mismatch to its finding, which gets a folder where it is new. The name."""
    name = name_of(small)
    folder = out / "findings" / name
    seen = [seed, device]
    if name in findings:
        record = findings[name]
        record["seen"].append(seen)
    else:
        owner, rule = sorting.sort(small)
        shutil.rmtree(folder, ignore_errors=True)
        if small["folder"]:
            shutil.copytree(small["folder"], folder)
        else:
            folder.mkdir(parents=True)
            for file in ("model.onnx", "samples.npz"):
                shutil.copy(small["whole"] / file, folder)
        (folder / "REPORT.txt").write_text(report(small, seed, owner, rule), encoding="utf-8")
        record = {"signature": signature(small), "operators": small["operators"], "types": small["types"], "class": owner, "rule": rule,
                  "values": {key: small["values"][key] for key in ("wrong", "values", "largest")} if small["values"] else None, "device": small["device"], "against": small["against"],
                  "alone": small["alone"], "mismatch": small["mismatch"], "seen": [seen]}
    (folder / "finding.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return name


def summary(all_rows):
    taken = [row for row in all_rows if not row.get("refused")]
    layers, explained = sum(row["layers"] for row in taken), sum(row["explained"] for row in taken)
    return (f"{len({row['seed'] for row in all_rows})} networks, {len(taken)} captures on {', '.join(sorted({row['device'] for row in all_rows}))}; "
            f"{len({row['seed'] for row in all_rows if row.get('refused')})} networks were refused by the quantiser.\n"
            f"`explain` did not answer {sum(row['verdict'] == 'not explained' for row in taken)} times.\n"
            f"{explained} of {layers} layers are explained in every value.\n")


def finding_line(name, record):
    seeds = sorted({seed for seed, _ in record["seen"]})
    chips = " ".join(sorted({device.rpartition(":")[2] for _, device in record["seen"]}))
    shown = ", ".join(map(str, seeds[:3])) + (f" and {len(seeds) - 3} more" if len(seeds) > 3 else "")
    operators = " + ".join(re.sub(r"\(.*?\)", "", operator) for operator in record["operators"])
    largest = record["values"]["largest"] if record["values"] else "-"
    return f"| `{name}` | {operators} | {record['types']} | {largest} | {chips} | {shown} | {record['rule']} |"


def table(out):
    """All findings by class, as Markdown."""
    all_rows, findings = rows.read(out / "rows.jsonl"), mismatches.known(out)
    lines = [summary(all_rows)] if all_rows else []
    n_counted = sum(m["finding"] == "counted" for row in all_rows for m in row.get("mismatches", []))
    if n_counted:
        lines.append(f"{n_counted} more mismatches are of a kind that was made small {mismatches.MOST_OF_A_KIND} times already, and were only counted.\n")
    for owner, meaning in sorting.CLASSES.items():
        of_class = {name: record for name, record in findings.items() if record["class"] == owner}
        if not of_class:
            continue
        lines += [f"## {owner[0].upper()}{owner[1:]}: {len(of_class)}\n", f"{meaning}\n",
                  "| finding | operators | types | largest, LSB | chips | seeds | rule |", "|---|---|---|---|---|---|---|"]
        lines += [finding_line(name, record) for name, record in sorted(of_class.items())] + [""]
    return "\n".join(lines)


HEAD = """# What a fuzzer finds between the simulator and npudiff's programs

Date: {date}. QAIRT 2.51.0, HTP simulator on x86-64. Made by `tools/studies/fuzz_htp/run`. **No real phone has been measured.**
{note}

Random networks of 3 to 12 operators ([strangers](strangers.md) has the generator) run on simulated chipsets. A layer with values that no
program gives is a mismatch, whoever is wrong. `npudiff reduce --differs 0lsb` makes the smallest part of the network that still differs from
`emu:htp-v69` or `emu:htp-v73`. Parts with the same operators, whole-number attributes and types are one finding: a folder with the model, its
inputs, expected and observed values and `REPORT.txt`. Rules sort them; `tools/studies/fuzz_htp/sorting.py` has the rules. *SDK defect* is
what a rule says from one model; [found](found.md) has those that were examined.

The rest of the page was printed by the study.

---

"""


def write_page(text, note):
    PATH.write_text(HEAD.format(date=datetime.date.today().isoformat(), note=note) + text, encoding="utf-8")
