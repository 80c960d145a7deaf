"""Whose a finding is, by rules. What no rule decides stays undecided."""

# In LSB, as `explain` calls an error gross (src/explain/verdict/fault_verdict.c).
GROSS = {"uint8": 8, "uint16": 2048}

CLASSES = {
    "SDK defect": "The device crashed, hung, or is far from what its inputs give.",
    "refused": "The device does not take the model.",
    "record": "The recorded values are not those that the next layer read.",
    "fusion": "Each operator alone is as expected; together they are not.",
    "our program": "A small error of one operator: npudiff has no program for it, or a wrong one.",
    "undecided": "No rule decides it.",
}


def sort(small):
    """(class, the rule that decided it)"""
    mismatch = small["mismatch"]
    if mismatch["state"] in ("hung", "crashed"):
        return "SDK defect", f"the capture {mismatch['state']}"
    if mismatch["state"] in ("failed", "partial", "no capture"):
        return "refused", f"the capture failed in {mismatch['kind'] or 'an unknown stage'}"
    if mismatch["defect"]:
        return "SDK defect", f"explain knows it: {mismatch['defect']}"
    if mismatch["kind"] == "wrong-record":
        return "record", "explain proves that the next layer read other values"
    if not small["is_small"] or not small["confirmed"]:
        return "undecided", "no part of the network shows it again"
    if small["alone"] == []:
        return "undecided", "explain explains every value of the small model, and not of the network"
    largest, gross = small["values"]["largest"], GROSS["uint16" if "uint16" in small["types"] else "uint8"]
    if largest >= gross:
        return "SDK defect", f"{largest} LSB from the expected value; {gross} is gross"
    if len(small["operators"]) > 1:
        return ("fusion", f"{len(small['operators'])} operators are needed, no part of them differs") if small["is_minimal"] else \
            ("undecided", "the small model could be smaller still")
    return "our program", "one operator, a small error; " + ("its program does not fit" if mismatch["covered"] else "npudiff has no program for it")
