# Which tensors changed at which SDK. Entries are made of one that was accepted, with other SDKs, chipsets and digests.
export SOURCE_DATE_EPOCH=1000000000
capture cnn.w8a8 -d exact -p zeros -p uniform:2 -o a.h5
capture mul.u8 -d exact -p zeros -o mul.h5
"$NPUDIFF" golden add store a.h5 --digest-only -q
cat >vary.py <<'END_OF_PROGRAM'
import hashlib
import json
import pathlib
import sys

STORE = pathlib.Path("store/entries")
BASE = json.loads(next(STORE.iterdir()).read_text())

def entry(chipset, sdk, changed=(), date="2026-01-01T00:00:00Z", **what):
    """Adds an entry whose tensors from the first of `changed` on have other values: {tensor: which}."""
    record = json.loads(json.dumps(BASE))
    record["axes"]["chipset"] = {"chipset": chipset, "kind": what.get("kind", "htp-sim")}
    record["axes"]["sdk"] = {"id": sdk}
    record["axes"]["host"] = {"cpu": what.get("host", "one")}
    record["axes"]["options"].update(what.get("options", {}))
    record["date"], record["status"] = date, what.get("status", record["status"])
    record["label"] = f"{chipset}-{sdk}"
    for edge in record["edges"]:
        if edge["name"] in changed:
            edge["digests"][what.get("probe", 0)] = f"{changed[edge['name']]:032x}"
    record["edges"] = [e for e in record["edges"] if e["name"] != what.get("without")]
    if what.get("status") == "failed":
        record["failure"] = {"stage": "finalize", "code": 511, "message": "no"}
    if what.get("unstable"):
        record["probes"][0]["unstable"] = what["unstable"]
    text = json.dumps(record).encode()
    (STORE / f"{hashlib.sha256(text).hexdigest()}.json").write_bytes(text)

for path in STORE.iterdir():
    path.unlink()
exec(sys.stdin.read())
END_OF_PROGRAM
tell() { run "$@" | sed -E 's/[0-9a-f]{64}/SHA256/g'; }
# 2.10 comes after 2.9. SM8450 changes once and changes back; SM8550 from residual/conv on, on the second probe only.
python vary.py <<'END_OF_STORE'
for sdk, value in (("qairt-2.9.0", 1), ("qairt-2.10.0", 2), ("qairt-2.11.0", 1)):
    entry("SM8450", sdk, {"logits": value})
for sdk, value in (("qairt-2.9.0", 1), ("qairt-2.11.0", 5)):
    entry("SM8550", sdk, {"residual/conv": value, "residual/relu": value, "logits": value}, probe=1)
entry("SM8650", "qairt-2.10.0", {"logits": 2})
END_OF_STORE
tell golden history store
tell golden history store -v
"$NPUDIFF" golden history store --json >document.json
python -c '
import json
chart, = json.load(open("document.json"))["charts"]
print(chart["chipsets"], chart["sdks"])
for step in chart["steps"]:
    print(step)
print({t["name"]: t["values"] for t in chart["tensors"] if t["n_steps"]})'
"$NPUDIFF" golden history store -q --report page.html
python -c '
import re
page = open("page.html").read()
print(re.findall(r"<td class=\"(?:changed|failed|)\">[^<]*</td>", page)[:9], page.count("History of"))'
"$NPUDIFF" report document.json -o again.html -q && grep -c "Of 3 steps from one SDK to the next, values changed at " again.html
# A device that fails, and works again; what is not repeatable; a second entry of the same SDK stands for the first; a tensor that is
# gone; a different host; a phone beside the simulator; different options are a different chart.
python vary.py <<'END_OF_STORE'
entry("SM8450", "qairt-2.9.0")
entry("SM8450", "qairt-2.10.0", status="failed")
entry("SM8450", "qairt-2.11.0")
entry("SM8550", "qairt-2.9.0", {"logits": 1}, unstable=2)
entry("SM8550", "qairt-2.10.0", {"logits": 2})
entry("SM8550", "qairt-2.11.0", {"logits": 3})
entry("SM8550", "qairt-2.11.0", {"logits": 2}, date="2026-02-01T00:00:00Z")
entry("SM8650", "qairt-2.10.0")
entry("SM8650", "qairt-2.11.0", {"logits": 1}, without="average", host="two")
entry("SM8650", "qairt-2.11.0", kind="htp")
entry("SM8650", "qairt-2.9.0", options={"fallback_allowed": "1"})
END_OF_STORE
tell golden history store -v
# One SDK; no entry; a damaged one; other words.
"$NPUDIFF" golden add one mul.h5 -q
tell golden history one | sed -E 's/npudiff-[0-9.]+/npudiff-VERSION/'
"$NPUDIFF" golden add none mul.h5 -q
rm none/entries/*
tell golden history none
echo '{}' >one/entries/$(printf '%064d' 7).json
tell golden history one -q
tell golden history missing
tell golden history store x
tell golden history store --keep 1
