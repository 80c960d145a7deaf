#!/usr/bin/env python3
"""The result of tools/demo, from the JSON of `npudiff compare` and `npudiff explain`: one table, models by chipsets, then one
sentence for each model.

    demo_table.py FOLDER MODEL ...      FOLDER/MODEL/compare.json and explain.json
"""
import json
import pathlib
import sys

NAMES = {"SM8450": "Snapdragon 8 Gen 1", "SM8650": "Snapdragon 8 Gen 3", "SM8750": "Snapdragon 8 Elite", "SM8850": "Snapdragon 8 Elite Gen 5"}


def tensors(compared):
    return compared["tensors"] if "tensors" in compared else compared["edges"]


def output(compared):
    """The model's output: the last tensor that is one."""
    return [tensor for tensor in tensors(compared) if tensor["model_output"]][-1]


def cause(device):
    """Whose the differences are, in a few words."""
    if device["verdict"] == "healthy":
        return f"{device['expected_arithmetic']} arithmetic, no fault"
    if device["verdict"] == "faulty":
        return "a fault"
    words = {"unexplained": "in part arithmetic that is not known", "inconclusive": "not every layer was examined"}
    return words.get(device["verdict"], device["verdict"])


def rows_of(model, compared, explained):
    accuracy = next((row for row in compared["accuracy"] if row["labels"]), None) if compared["accuracy"] else None
    for i, device in enumerate(compared["devices"]):
        pair = next((p for p in output(compared)["pairs"] if (p["ref"], p["test"]) == (0, i)), None)
        differs = "(the reference)" if pair is None else f"{100 * pair['share']:.1f} %, by at most {pair['max_lsb']} LSB" if pair["share"] else "none"
        chip = NAMES.get(device["chipset"], device["label"])
        right = "" if accuracy is None else f"{100 * accuracy['devices'][i]['accuracy']:.1f} %"
        yield model if i == 0 else "", chip if chip != "cpu" else "CPU", differs, right, cause(explained["devices"][i])


def sentence(model, compared, explained):
    """Who agrees with whom, what it does to the predictions, and what it is."""
    changed = [sum(row["devices"][i]["samples"] - p["agree"] for i, p in enumerate(row["pairs"], 1))
               for row in compared["accuracy"] if row["labels"]]
    n_all = len(tensors(compared))
    n_equal = sum(len(set(tensor["classes"])) == 1 for tensor in tensors(compared))
    verdicts = {device["verdict"] for device in explained["devices"]}
    what = ("every layer of every device follows known arithmetic" if verdicts == {"healthy"} else
            "a layer has a fault" if "faulty" in verdicts else "nothing shows a fault, but the arithmetic of some layers is not known")
    classes = "no predicted class changes" if not any(changed) else f"{sum(changed)} predicted classes change, over all devices together"
    return f"{model}: groups that agree in every bit: {compared['classes']}; {n_equal} of {n_all} tensors are equal everywhere; {classes}; {what}."


def main():
    folder = pathlib.Path(sys.argv[1])
    titles = ("model", "device", "output values that differ", "top-1", "cause")
    table, sentences = [titles], []
    for model in sys.argv[2:]:
        compared, explained = (json.loads((folder / model / f"{name}.json").read_text()) for name in ("compare", "explain"))
        table += rows_of(model, compared, explained)
        sentences.append(sentence(model, compared, explained))
    widths = [max(len(row[i]) for row in table) for i in range(len(titles))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print()
    print("\n".join(sentences))


if __name__ == "__main__":
    main()
