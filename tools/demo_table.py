#!/usr/bin/env python3
"""The result of tools/demo, from the JSON of `npudiff compare` and `npudiff explain`: one table, models by chipsets, then one
sentence for each model.

    demo_table.py FOLDER MODEL ...      FOLDER/MODEL/compare.json and explain.json, and align.json where there is one
"""
import json
import pathlib
import sys

NAMES = {"SM8450": "Gen 1", "SM8650": "Gen 3", "SM8750": "Elite", "SM8850": "Elite Gen 5"}


def tensors(compared):
    return compared["tensors"]


def output(compared):
    """The model's output: the last tensor that is one."""
    return [tensor for tensor in tensors(compared) if tensor["model_output"]][-1]


def cause(device):
    """Whose the differences are, in a few words."""
    if device["verdict"] == "healthy":
        return f"{device['expected_arithmetic']} arithmetic, no fault"
    if device["verdict"] == "faulty":
        return "a fault"
    words = {"unexplained": "partly unknown arithmetic", "inconclusive": "not all layers examined"}
    return words.get(device["verdict"], device["verdict"])


def short(device):
    return "CPU" if device["label"] == "cpu" else NAMES.get(device["chipset"], device["label"])


def rows_of(model, compared, explained):
    """A row for each group of devices that agree in every bit."""
    accuracy = next((row for row in compared["accuracy"] if row["labels"]), None)
    devices = compared["devices"]
    for i, device in enumerate(devices):
        group = [short(d) for d in devices if d["group"] == device["group"]]
        if device["group"] in [d["group"] for d in devices[:i]]:
            continue
        pair = next((p for p in output(compared)["pairs"] if (p["ref"], p["test"]) == (0, i)), None)
        differs = "(the reference)" if pair is None else f"{100 * pair['share']:.1f} %, at most {pair['max_lsb']} LSB" if pair["share"] else "none"
        right = "" if accuracy is None else f"{100 * accuracy['devices'][i]['accuracy']:.1f} %"
        yield model if i == 0 else "", ", ".join(group), differs, right, cause(explained["devices"][i])


def sentence(model, compared, explained):
    """Is there a fault, does it matter, how many groups are there."""
    verdicts = {device["verdict"] for device in explained["devices"]}
    fault = ("no device has a fault" if verdicts == {"healthy"} else "a device has a fault" if "faulty" in verdicts else
             "the arithmetic of some layers is not known, and no known fault predicts their values")
    changed = {}
    for row in compared["accuracy"]:
        for pair in row["pairs"] if row["labels"] else ():
            changed[compared["devices"][pair["test"]]["group"]] = pair["samples"] - pair["agree"]
    most = max(changed.values(), default=0)
    matters = "no predicted class changes" if most == 0 else f"at most {most} predicted classes change"
    return f"{model}: {fault}; {matters}; {len({d['group'] for d in compared['devices']})} different results."


def alignment(model, aligned):
    """What became of the chips' differences, and what it cost."""
    counts, price, seen = aligned["counts"], aligned["accuracy_cost"], aligned["verification"]
    which = "every tensor" if seen["tensors_equal"] == seen["tensors"] else f"{seen['tensors_equal']} of {seen['tensors']} tensors"
    return (f"{model}, aligned: {seen['groups']}, {which}; {counts['proven']} of {counts['layers']} layers are proven; "
            f"{price['right_after']} of {price['labelled']} right, {price['right_before']} before.")


def main():
    folder = pathlib.Path(sys.argv[1])
    titles = ("model", "Snapdragon 8", "outputs that differ", "top-1", "cause")
    table, sentences = [titles], []
    for model in sys.argv[2:]:
        compared, explained = (json.loads((folder / model / f"{name}.json").read_text()) for name in ("compare", "explain"))
        table += rows_of(model, compared, explained)
        sentences.append(sentence(model, compared, explained))
        if (folder / model / "align.json").exists():
            sentences.append(alignment(model, json.loads((folder / model / "align.json").read_text())))
    widths = [max(len(row[i]) for row in table) for i in range(len(titles))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print()
    print("\n".join(sentences))


if __name__ == "__main__":
    main()
