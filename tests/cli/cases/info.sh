# What a capture says of itself, and its logs.
capture cnn.w8a8 -d cpu -p zeros -p ones -o a.h5 --profile --repeats 2
"$NPUDIFF" info -v a.h5 | grep -E '^(a.h5|capture|device|runtime|model|host|tensors|nodes)|  (kind|label|is_simulator|edges|file|sha256|opset|optimisation|threads|fallback_allowed|status|npudiff_format|npudiff_version) '
"$NPUDIFF" info a.h5 --json | python -c '
import json, sys
info = json.load(sys.stdin)
print(info["placement"], info["logs"])
print([(p["probe"], p["samples"], p["expected"], p["repeats"], p["labels"], p["median_us"] > 0) for p in info["probes"]])
hashes = [v for k, v in info["attributes"]["runtime"].items() if k.endswith("_sha256")]
print(any("libonnxruntime.so" in str(v) for v in info["attributes"]["runtime"].values()), {len(h) for h in hashes})'
run info a.h5 --log nothing
"$NPUDIFF" info a.h5 --log profile | python -c '
import json, sys
print({e["cat"] for e in json.load(sys.stdin)} >= {"Session", "Node"})'
"$NPUDIFF" info a.h5 | grep -c library_ || true
"$NPUDIFF" info a.h5 -v | grep -q library_000_path
"$NPUDIFF" info a.h5 --log profile >profile
"$NPUDIFF" info a.h5 --log profile --json | python -c '
import json, sys
log = json.load(sys.stdin)
print(sorted(log), log["path"], log["log"], log["text"] == open("profile").read())'
"$NPUDIFF" info a.h5 | sed -E -n '/^(a.h5|device|model|nodes)/p'
