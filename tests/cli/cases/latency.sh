# Verdicts on lists of latencies of known kinds, in every form, and what is refused.
export SOURCE_DATE_EPOCH=1000000000
python - <<'PY'
import json
state = 1
def uniform():
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 11) / 2**53
def normal():
    return sum(uniform() for _ in range(12)) - 6
def write(name, values, form="{:.3f}"):
    with open(name, "w") as file:
        file.writelines(form.format(v) + "\n" for v in values)
one = [5000, 1500] + [1000 * (1 + 0.02 * normal()) for _ in range(300)]
write("one.txt", one)
write("wide.txt", [1000 * (1 + 0.2 * normal()) for _ in range(300)])
write("modes.txt", [t + (100 if uniform() < 0.2 else 0) for t in one[2:]])
write("regimes.txt", [t * (1.25 if i > 200 else 1) for i, t in enumerate(one[2:])])
write("few.txt", one[:60])
with open("table.csv", "w") as file:
    file.write("run,ms\n" + "".join(f"{i},{t / 1000:.6f}\n" for i, t in enumerate(one)))
json.dump({"execution_summary": {"all_inference_times": [round(t) for t in one]}}, open("job.json", "w"))
PY
for list in one wide modes regimes few; do run latency $list.txt; done
run latency table.csv --column ms --unit ms
run latency job.json one.txt modes.txt
run latency modes.txt --warm-up 0 --min-runs 1000 -q
run latency wide.txt --suspect-cv 0.4 -q
"$NPUDIFF" latency modes.txt --json | python -c '
import json, sys
report = json.load(sys.stdin)
(s,) = report["series"]
print(s["verdict"], s["is_suspect"], s["timed_runs"], [m["runs"] for m in s["modes"]], s["join"]["state"])
print(report["rule"]["suspect_cv"], len(report["rule"]["false_alarms"]) > 0)'
run latency table.csv
run latency table.csv --column us
echo oops >> one.txt
run latency one.txt
run latency missing.txt
run latency one.txt --unit days
run latency one.txt --probe zeros
run latency --healthy-cv 0.3 one.txt
: > empty.txt
run latency empty.txt
printf '1\n-2\n' > negative.txt
run latency negative.txt
capture cnn.w8a8 -d emu:half-even -p zeros -o a.h5
run latency a.h5
run latency a.h5 --probe ones
run latency a.h5 --unit ms
head -c 100 a.h5 > cut.h5
# How large the whole file is depends on the paths that are written into it.
run latency cut.h5 | sed "s/stored_eof = [0-9]*/stored_eof = N/"
