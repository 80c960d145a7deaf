# Each probe has a signal of its own; -p chooses, and reads nothing of the others.
capture vit.w8a8 -d cpu -d 'cpu?optimisation=all' -p uniform:20 -p ramp -o both
captures="both/cpu.h5 both/cpu-optimisation-all.h5"
"$NPUDIFF" compare $captures --json >both.json || echo "both: exit $?"
for probe in uniform ramp; do
    "$NPUDIFF" compare $captures -p $probe --json >$probe.json || echo "$probe: exit $?"
done
cat >check.py <<'END'
import json
SIGNAL = "sqnr_db", "cosine", "norm_ratio", "pearson", "gain", "offset"
both, uniform, ramp = (json.load(open(name + ".json")) for name in ("both", "uniform", "ramp"))
signal = lambda part: [part[name] for name in SIGNAL]
n_signals = n_apart = 0
for e, u, n in zip(both["tensors"], uniform["tensors"], ramp["tensors"]):
    pair, one, other = e["pairs"][0], u["pairs"][0], n["pairs"][0]
    assert [len(x["probes"]) for x in (pair, one, other)] == [2, 1, 1]
    for part, alone in zip(pair["probes"], (one, other)):
        assert signal(part) == signal(alone["probes"][0]) == signal(alone)
    if pair["signal_probe"] is None:
        continue
    worst = next(p for p in pair["probes"] if p["probe"] == pair["signal_probe"])
    assert signal(pair) == signal(worst), e["name"]
    assert all(p["samples_differing"] == 0 or p["sqnr_db"] >= worst["sqnr_db"] for p in pair["probes"])
    n_signals += 1
    n_apart += pair["probes"][0]["cosine"] != pair["probes"][1]["cosine"]
    assert pair["differing"] == one["differing"] + other["differing"]
print("signals are of one probe:", n_signals > 10, n_apart > 10)
END
python check.py
"$NPUDIFF" compare $captures -v --width 250 >report.txt || echo "text: exit $?"
sed -n '/^signal/,/^$/p' report.txt | awk 'NR > 1 && NF {print ($3 == "probe" ? $1 " " $2 " " $3 : $1 " " $3)}'
"$NPUDIFF" compare $captures -p nothing || echo "nothing: exit $?"
# Values of the probe that is left out are damaged: that shows only where it is read.
python - <<'END'
import h5py
with h5py.File("both/cpu-optimisation-all.h5", "r") as file:
    outputs = file["probes/ramp/outputs"]
    data = max((d for d in outputs.values() if isinstance(d, h5py.Dataset)), key=lambda d: d.size)
    at = [data.id.get_chunk_info(0).byte_offset] if data.chunks else [data.id.get_offset()]
with open("both/cpu-optimisation-all.h5", "r+b") as file:
    file.seek(at[0] + 20)
    old = file.read(8)
    file.seek(at[0] + 20)
    file.write(bytes(b ^ 255 for b in old))
END
"$NPUDIFF" compare $captures -q -p 'uni*' || echo "damage elsewhere: exit $?"
"$NPUDIFF" compare $captures -q -p uniform -p ramp 2>damage.txt || echo "damage: exit $?"
sed 's/.*\[\(ND-[0-9]*\)\].*/\1/' damage.txt
