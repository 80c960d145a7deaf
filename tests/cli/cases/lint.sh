# Faults found in the file: text, all of it, JSON, SARIF; --fix; models without a fault; what is refused.
run lint "$GOLDEN/lint/bias-twice.u8.onnx"
run lint "$GOLDEN/models/vit.w8a16.onnx" -v
run lint "$GOLDEN/models/cnn.w8a8.onnx"
run lint "$GOLDEN/lint/abs.u16.onnx"
cp "$GOLDEN/lint/sigmoid-moved.u16.onnx" "$GOLDEN/lint/joined.u8.onnx" .
run lint sigmoid-moved.u16.onnx --fix -o mended.onnx
run lint mended.onnx
run lint sigmoid-moved.u16.onnx --fix -o mended.onnx
run lint sigmoid-moved.u16.onnx --fix -o mended.onnx -f -q
# One that --fix does not mend: nothing is written.
run lint joined.u8.onnx --fix -o none.onnx -v
run lint joined.u8.onnx -q --sarif lint.sarif
"$NPUDIFF" lint joined.u8.onnx --json >document.json || true
"$NPUDIFF" lint --rules --json >rules.json
python - <<'END'
import json
document, sarif = json.load(open("document.json")), json.load(open("lint.sarif"))
print(document["result"], document["counts"], document["findings"])
(run,) = sarif["runs"]
print(sarif["version"], run["tool"]["driver"]["name"], [r["id"] for r in run["tool"]["driver"]["rules"]])
print(json.dumps(run["results"]))
print([r["id"] for r in json.load(open("rules.json"))["rules"] if r["mended_by_fix"]])
END
ls
# Not quantised, no model, missing, and options that do not fit.
run lint "$GOLDEN/models/cnn.float.onnx"
run lint "$GOLDEN/models/digits-test.npz"
run lint missing.onnx
run lint
run lint joined.u8.onnx --fix
run lint joined.u8.onnx -o out.onnx
run lint joined.u8.onnx --rules
run lint joined.u8.onnx --sarif lint.sarif
run lint joined.u8.onnx --sarif missing/lint.sarif
