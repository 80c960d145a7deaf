# Certificates of aligned models: checked again, and refused where anything in them is not so.
model=$GOLDEN/models/cnn.w8a8.onnx float=$GOLDEN/models/cnn.float.onnx
python -c "import numpy, sys; d = numpy.load(sys.argv[1]); numpy.savez('few.npz', **{k: d[k][:20] for k in d.files})" "$GOLDEN/models/digits-test.npz"
run align "$model" --float "$float" -p digits=few.npz -o aligned.onnx --certificate cert.json
run verify cert.json aligned.onnx
run verify cert.json aligned.onnx --model "$model" --float "$float" -p digits=few.npz -d emu:htp-v69 -d emu:htp-v73
run verify cert.json aligned.onnx -q
"$NPUDIFF" verify cert.json aligned.onnx --json >check.json
python -c 'import json; d = json.load(open("check.json")); print(d["kind"], d["verdict"], d["counts"])'

# A device with a third arithmetic; a different file.
run verify cert.json aligned.onnx -p digits=few.npz -d emu:htp-v69 -d emu:half-up
run verify cert.json "$model"

# Changed by hand; and forged, with a digest that fits.
cat >forge.py <<'PY'
import hashlib, json, os, sys

def canonical(value):
    """As docs/reference/certificate.md describes it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{canonical(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        text = format(value, ".17g")
        return text if "." in text or "e" in text else text + ".0"
    return json.dumps(value, ensure_ascii=False)

def digest(certificate):
    content = {k: v for k, v in certificate.items() if k != "digest"}
    return hashlib.sha256(canonical(content).encode()).hexdigest()

certificate = json.load(open(os.environ.get("CERTIFICATE", "cert.json")))
assert digest(certificate) == certificate["digest"]
for change in sys.argv[2:]:
    place, value = change.split("=", 1)
    *folders, last = [int(word) if word.isdigit() else word for word in place.split("/")]
    at = certificate
    for folder in folders:
        at = at[folder]
    at[last] = json.loads(value)
if sys.argv[1] == "signed":
    certificate["digest"] = digest(certificate)
json.dump(certificate, open("forged.json", "w"), indent=1)
PY
forged() {
    echo "$*"
    python forge.py "$@"
    run verify forged.json "${file:-aligned.onnx}"
}
forged unsigned accuracy_cost/answers/after/right=700
forged signed arithmetics/1/behaviour='"00"'
forged signed arithmetics/1/name='"htp-v99"'
forged signed arithmetics='[]'
forged signed layers/0/sums=1e9
forged signed layers/3/tensor='"other"'
forged signed layers='[]'
forged signed counts/proven=10
forged signed inputs/0/shape='[1, 1, 8, 9]'
# The certificate of the model as it was, with arithmetics that no longer are the same.
sha=$(sha256sum "$model" | cut -d' ' -f1)
python forge.py signed files/aligned/sha256="\"$sha\""
"$NPUDIFF" verify forged.json "$model" --json >check.json || true
python -c 'import json; print([r["what"] for r in json.load(open("check.json"))["refusals"]])'

# The price with other inputs or models than before.
run verify cert.json aligned.onnx --model "$model" --float "$float" -p uniform:2
run verify cert.json aligned.onnx --model "$model" -p digits=few.npz
run verify cert.json aligned.onnx --model aligned.onnx --float "$float" -p digits=few.npz

# Layers that are not proven: as tested needs devices again.
attention=$GOLDEN/models/random-attention.w8a8.onnx
run align "$attention" -p uniform:4 --verify emu:htp-v69 --verify emu:htp-v73 -o attention.onnx --certificate attention.json -q
run verify attention.json attention.onnx
place=$(python -c 'import json; print([(l["operators"], l["state"]) for l in json.load(open("attention.json"))["layers"]].index(("MatMul", "tested")))')
export CERTIFICATE=attention.json file=attention.onnx
forged signed layers/$place/state='"proven"'
run verify attention.json attention.onnx -d emu:htp-v69 -d emu:htp-v73 -p uniform:4:9

# What is no certificate, and options that do not fit.
head -c 300 cert.json >cut.json
run verify cut.json aligned.onnx
run verify check.json aligned.onnx
run verify cert.json missing.onnx
run verify cert.json
run verify aligned.onnx cert.json
run verify cert.json aligned.onnx --model "$model"
run verify cert.json aligned.onnx --float "$float"
run verify cert.json aligned.onnx -d exact -p uniform
run verify aligned.onnx -d exact -d cpu -p uniform
run align "$model" --certificate other.json
run align "$model" -o new.onnx --certificate cert.json
ls
