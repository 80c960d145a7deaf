# With --json an error is one JSON document on stdout, for every command, whatever went wrong; stderr says it for people.
check() {
    local code=0
    "$NPUDIFF" "$@" >out.json 2>err.txt || code=$?
    python - "$code" "$*" <<'PY'
import json, re, sys
document = json.load(open("out.json"))
error = document["error"]
assert sorted(error) == ["id", "message", "object"] and re.fullmatch(r"ND-\d+", error["id"]), document
told = open("err.txt").read()
assert error["message"].splitlines()[0] in told, told
kinds = {key: document[key] for key in ("kind", "format") if key in document}
ids = re.findall(r"^ND_ERROR\(\w+, (\d+)", open(f"{__import__('os').environ['ROOT']}/include/npudiff/core/error_ids.def").read(), re.M)
assert error["id"][3:] in ids, error
print(f"npudiff {sys.argv[2]}: exit {sys.argv[1]}, {kinds}, {error['id']}, object {error['object']}")
PY
}
touch empty.h5
for command in capture compare explain placement prepare latency logs reduce fingerprint encodings config qualify golden \
    triage bundle import export info ls verify devices runtimes probes; do
    check $command --json --no-such-option
done
check compare --json missing.h5 missing.h5
check compare missing.h5 missing.h5 --json
check compare empty.h5 empty.h5 --json
check compare --json
check compare --json empty.h5 empty.h5 --lsb
check compare --json empty.h5 empty.h5 --cut rows
check captrue --json
check capture missing.onnx -d cpu -o x --json
check capture "$GOLDEN/models/mul.u8.onnx" -d nothing -o x --json
check explain --quantised missing.onnx empty.h5 --json
check placement missing.onnx empty.h5 --json
check prepare missing.onnx --chipset gen3 -o x --json
check latency missing.csv --json
check logs missing.log --json
check logs empty.h5 --kind nonsense --json
check reduce missing.onnx -d cpu --json
check fingerprint -d nothing --json
check fingerprint --diff missing.json missing.json --json
check encodings list missing.json --json
check config missing.h5 --json
check qualify missing.yaml --json
check golden list missing --json
check triage empty.h5 --against missing --json
check bundle empty.h5 -o x.json --json
check import numpy missing -o x.h5 --json
check export aihub missing.h5 -o x.h5 --json
check info empty.h5 --json
check ls missing.h5 --json
check verify missing.h5 --json
check runtimes remove no-such-runtime --json

# A result that exists but is not whole is one document, too: the result, and the error in it.
capture mul.u8 -d emu:floor -p zeros -o a.h5
check golden check store a.h5 --json
"$NPUDIFF" golden add store a.h5 >/dev/null
check golden check store a.h5 missing.h5 --json
python -c 'import json; d = json.load(open("out.json")); print(sorted(d), len(d["checks"]))'
check capture "$GOLDEN/models/mul.u8.onnx" -d emu:floor -p zeros -o b.h5 --agent /bin/true --json
