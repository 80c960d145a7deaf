"""The table of the study, made from its rows alone."""
import collections

import mutations
from intervals import share

CHIPS = ("gen1", "gen3", "gen5")
FALLBACK = "fallback"
AWAY = ("not-npu", "partly")


# --- Healthy devices.

def devices(healthy, name=None):
    """(row of the network, row of the device) of captures that were explained."""
    for row in healthy:
        for device, told in row.get("devices", {}).items():
            if name in (None, device) and told.get("layers"):
                yield row, device, told


def layers(told):
    """Layers of a device's row; inputs are none."""
    return [layer for layer in told["layers"] if layer["is_layer"]]


def is_accused(layer):
    return layer["state"] == "faulty"


def is_defect(layer):
    """Called faulty, and rightly: by the SDK, or because its record is proven not to be what its readers read."""
    return layer["defect"] or layer["kind"] == "wrong-record"


def is_sent_away(layer):
    """Called a fallback, or not on the NPU, although every node ran there."""
    return layer["kind"] == FALLBACK and layer["state"] == "faulty" or layer["where"] in AWAY


def every_value(layer):
    """By known arithmetic, or by a defect of the SDK that is in it."""
    return (layer["state"] == "follows" or layer["defect"] is not None) and layer["unexplained"] == 0


def accusations(healthy):
    yield "| device | networks in which a layer is called faulty | layers | without known defects of the SDK and wrong records, networks |"
    yield "|---|---|---|---|"
    for name in ("cpu", *CHIPS):
        told = [told for _, _, told in devices(healthy, name)]
        if not told:
            continue
        networks = sum(any(map(is_accused, layers(x))) for x in told)
        unknown = sum(any(is_accused(layer) and not is_defect(layer) for layer in layers(x)) for x in told)
        every = [layer for x in told for layer in layers(x)]
        yield f"| {name} | {share(networks, len(told))} | {share(sum(map(is_accused, every)), len(every))} | {share(unknown, len(told))} |"


def places(healthy):
    yield "| device | layer called a fallback, or not on the NPU: networks | layers | the same from values alone: networks | layers |"
    yield "|---|---|---|---|---|"
    for name in CHIPS:
        told = [told for _, _, told in devices(healthy, name)]
        if not told:
            continue
        every = [layer for x in told for layer in layers(x)]
        networks = sum(any(map(is_sent_away, layers(x))) for x in told)
        hidden = [layer["where_hidden"] in AWAY for layer in every]
        hidden_networks = sum(any(layer["where_hidden"] in AWAY for layer in layers(x)) for x in told)
        yield (f"| {name} | {share(networks, len(told))} | {share(sum(map(is_sent_away, every)), len(every))} | "
               f"{share(hidden_networks, len(told))} | {share(sum(hidden), len(hidden))} |")
    yield from disguises(healthy)
    cpu = [told for _, _, told in devices(healthy, "cpu")]
    if cpu:
        every = [layer for x in cpu for layer in layers(x)]
        yield f"\nLayers of the CPU that are called the NPU's: {share(sum(layer['where'] == 'npu' for layer in every), len(every))}."


def disguises(healthy):
    """Layers of the CPU that are stated to be the NPU's, and how often 'not on the NPU' is right over both kinds of captures."""
    told = [told["disguised"] for _, _, told in devices(healthy, "cpu") if told.get("disguised", {}).get("layers")]
    if not told:
        return
    every = [layer for x in told for layer in layers(x)]
    away, npu = (sum(layer["where"] in places for layer in every) for places in (AWAY, ("npu",)))
    wrong = sum(layer["where_hidden"] in AWAY for name in CHIPS for _, _, x in devices(healthy, name) for layer in layers(x))
    yield (f"\nThe CPU's values, stated to be those of gen3: layers that are called not the NPU's {share(away, len(every))}, "
           f"the NPU's {share(npu, len(every))}.")
    yield f"'Not on the NPU' from values alone is right, over these and the captures above: {share(away, away + wrong)} of what is said."


def explained(healthy):
    yield "| | uint8 | uint16 |"
    yield "|---|---|---|"
    kinds = {
        "layers explained in every value": every_value,
        "layers that follow (a few values may be in doubt)": lambda layer: layer["state"] == "follows",
        "layers that do not follow, of operators without arithmetic": lambda layer: layer["state"] != "follows" and not layer["covered"],
        "layers that do not follow, although the arithmetic is said to be known": lambda layer: layer["state"] != "follows" and layer["covered"],
        "layers that could not be examined": lambda layer: layer["state"] == "not-examined",
    }
    for name in CHIPS:
        for text, test in kinds.items():
            cells = []
            for bits in (8, 16):
                every = [layer for row, _, told in devices(healthy, name) if row["habits"]["bits"] == bits for layer in layers(told)]
                cells.append(share(sum(map(test, every)), len(every)))
            yield f"| {name}: {text} | {' | '.join(cells)} |"


def by_operator(healthy):
    """gen1 and gen3 together: those that every network runs on."""
    count = collections.defaultdict(lambda: [0, 0, 0])
    for name in ("gen1", "gen3"):
        for row, _, told in devices(healthy, name):
            for layer in layers(told):
                cell = count[layer["op"], row["habits"]["bits"]]
                cell[0] += every_value(layer)
                cell[1] += 1
                cell[2] += is_accused(layer)
    yield "| operator | uint8: explained in every value | uint16: explained in every value | called faulty |"
    yield "|---|---|---|---|"
    for op_type in sorted({op_type for op_type, _ in count}):
        cells = [share(*count[op_type, bits][:2]) if (op_type, bits) in count else "" for bits in (8, 16)]
        accused = sum(count[op_type, bits][2] for bits in (8, 16) if (op_type, bits) in count)
        yield f"| {op_type} | {cells[0]} | {cells[1]} | {accused or ''} |"


def verdicts(healthy):
    names = ["healthy", "inconclusive", "unexplained", "faulty", "failed"]
    yield "| device | " + " | ".join(names) + " | arithmetic called refuted | capture: median, longest | explain: median, longest |"
    yield "|---" * (len(names) + 4) + "|"
    for name in ("cpu", *CHIPS):
        told = [told for _, _, told in devices(healthy, name)]
        if told:
            count = collections.Counter(x["verdict"] for x in told)
            yield (f"| {name} | " + " | ".join(str(count[verdict]) for verdict in names) + f" | {sum(bool(x['is_refuted']) for x in told)} | "
                   f"{seconds([x['capture_processor_s'] for x in told])} | {seconds([x['explain_processor_s'] for x in told])} |")


def seconds(values):
    values = sorted(values)
    return f"{values[len(values) // 2]:.2f} s, {values[-1]:.2f} s"


def not_captured(healthy):
    for row in healthy:
        habits = row.get("habits", {})
        head = f"* seed {row['seed']}, {habits.get('maker')} uint{habits.get('bits')}"
        if row.get("refused"):
            yield f"* seed {row['seed']}: not quantised: {row['refused']}"
        for device, told in row.get("devices", {}).items():
            if told["status"] != "complete":
                yield (f"{head}, {device}: {told['status']} at {told['stage'] or '?'} after {told['capture_s']:.0f} s: "
                       f"{shortened(told['reason'])}")
            elif not told.get("layers"):
                yield f"{head}, {device}: explain gave no layers: {told.get('failure') or told.get('explain_message')}"
            if told.get("left_out"):
                yield f"{head}, {device}: {len(told['left_out'])} tensors left out"


def shortened(text):
    text = " ".join((text or "").split())
    return text if len(text) < 170 else text[:167] + "..."


def alarms(healthy):
    for row, device, told in devices(healthy):
        for layer in layers(told):
            head = f"* seed {row['seed']}, {row['habits']['maker']} uint{row['habits']['bits']}, {device}: {layer['op']} '{layer['name']}': "
            known = " (known defect)" if is_defect(layer) else ""
            if is_accused(layer):
                yield head + f"{layer['kind'] or 'no kind'}{known}: {shortened(layer['text'] or layer['evidence'])}"
            elif device in CHIPS and is_sent_away(layer):
                yield head + f"called {layer['where']}"
            elif device in CHIPS and layer["where_hidden"] in AWAY:
                yield head + f"called {layer['where_hidden']} from values alone"


# --- Faults.

def fault_tables(faulty):
    shown = [row for row in faulty if row.get("told")]
    right = [row for row in shown if row["outcome"] in ("right", "among")]
    yield "| | right layer | the first that is named | wrong layers only | unexplained | silent |"
    yield "|---|---|---|---|---|---|"
    groups = {"all": shown, "arithmetic known: the layer follows without the fault": [row for row in shown if row["known"]],
              "arithmetic not known": [row for row in shown if not row["known"]]}
    groups.update({f"uint{bits}": [row for row in shown if row["habits"]["bits"] == bits] for bits in (8, 16)})
    for name, group in groups.items():
        yield f"| {name} | " + " | ".join(
            share(sum(row["outcome"] in outcomes for row in group), len(group))
            for outcomes in (("right", "among"), ("right",), ("wrong",), ("unexplained",), ("silent", "no answer"))) + " |"
    judged = [row for row in right if mutations.MUTATIONS[row["kind"]][1]]
    kinds = share(sum(row["named_kind"] in mutations.MUTATIONS[row["kind"]][1] for row in judged), len(judged))
    yield f"\nKind of the fault right, where the layer is right and `explain` has a name for what was done: {kinds}."
    unnamed = [row for row in right if row["named_kind"] is None]
    yield f"Right layer, no kind named: {share(len(unnamed), len(right))}."
    control = [row for row in shown if row["control"]["verdict"] == "faulty"]
    yield f"The same captures without the fault, imported in the same way: {share(len(control), len(shown))} called faulty."
    hidden = [row for row in faulty if not row.get("told")]
    why = counted(row.get("outcome") or "not quantised" for row in hidden)
    yield f"\n{len(faulty)} networks; {len(hidden)} are not in the table: {why}."


def counted(values):
    return ", ".join(f"{value} {n}" for value, n in sorted(collections.Counter(values).items())) or "none"


def by_kind(faulty):
    yield "| fault | right layer | not named | kinds that are named |"
    yield "|---|---|---|---|"
    for kind in sorted({row["kind"] for row in faulty if row.get("told")}):
        group = [row for row in faulty if row.get("told") and row["kind"] == kind]
        right = [row for row in group if row["outcome"] in ("right", "among")]
        yield (f"| {kind} | {share(len(right), len(group))} | {counted(row['outcome'] for row in group if row not in right)} | "
               f"{counted(row['named_kind'] or 'no kind' for row in right)} |")


def by_faulty_operator(faulty):
    yield "| operator | arithmetic known: right layer | not known: right layer |"
    yield "|---|---|---|"
    shown = [row for row in faulty if row.get("told")]
    for op_type in sorted({row["op"] for row in shown}):
        cells = []
        for known in (True, False):
            group = [row for row in shown if row["op"] == op_type and bool(row["known"]) == known]
            cells.append(share(sum(row["outcome"] in ("right", "among") for row in group), len(group)) if group else "")
        yield f"| {op_type} | {cells[0]} | {cells[1]} |"


def not_named(faulty):
    for row in faulty:
        if row.get("told") and row["outcome"] not in ("right", "among"):
            named = ", ".join(f"'{fault['layer']}' ({fault['kind'] or 'no kind'})" for fault in row["told"].get("faulty", [])) or "nothing"
            yield (f"* seed {row['seed']}, {row['habits']['maker']} uint{row['habits']['bits']}, {row['device']}: {row['kind']} in {row['op']} "
                   f"'{row['layer']}' ({row['n_far']} of {row['n_values']} values far off): {row['outcome']}; faulty: {named}")


def section(title, lines):
    lines = list(lines)
    return [f"### {title}", "", *(lines or ["None."]), ""]


HEALTHY = {"False alarms": accusations, "Where it ran": places, "Explained": explained, "By operator (gen1 and gen3)": by_operator,
           "Verdicts, and processor time": verdicts, "Every false alarm": alarms, "Not captured, or not whole": not_captured}
FAULTS = {"Named": fault_tables, "By fault": by_kind, "By operator": by_faulty_operator, "Every fault that is not named": not_named}


def part(title, group, sections):
    lines = [f"## {title}", "", f"{len(group)} networks of 4 samples, seeds {seeds(group)}; program: commit {commits(group)}.", ""]
    for name, made in sections.items():
        lines += section(name, made(group))
    return lines


def text(everything):
    healthy = [row for row in everything if row["part"] == "healthy"]
    faulty = [row for row in everything if row["part"] == "faults"]
    out = []
    if healthy:
        out += part("Healthy devices", healthy, HEALTHY)
    if faulty:
        out += part("Faults in the model that the simulator runs", faulty, FAULTS)
    return "\n".join(out).rstrip() + "\n"


def seeds(group):
    """'1 to 60, 63'"""
    parts, numbers = [], sorted({row["seed"] for row in group})
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)


def commits(group):
    return ", ".join(dict.fromkeys(row["commit"] for row in group))
