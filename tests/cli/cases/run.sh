# capture, compare and explain in one go: what each of them prints, one after the other, and the worst exit code.
cnn=$GOLDEN/models/cnn.w8a8.onnx
devices="-d exact -d emu:htp-v73"
code=0
"$NPUDIFF" run "$cnn" $devices -p uniform:3 -o a --float "$GOLDEN/models/cnn.float.onnx" >run.txt 2>/dev/null || code=$?
echo "differs: exit $code"
"$NPUDIFF" capture "$cnn" $devices -p uniform:3 -o b >each.txt 2>/dev/null
echo >>each.txt
"$NPUDIFF" compare a/exact.h5 a/emu-htp-v73.h5 >>each.txt || true
echo >>each.txt
"$NPUDIFF" explain --quantised "$cnn" --float "$GOLDEN/models/cnn.float.onnx" a/exact.h5 a/emu-htp-v73.h5 >>each.txt
sed -i 's:b/exact.h5:a/exact.h5:; s:b/emu:a/emu:' each.txt
cmp run.txt each.txt
# The JSON of all three in one document.
"$NPUDIFF" run "$cnn" $devices -p uniform:3 -o a --resume --json 2>/dev/null >run.json || true
python -c '
import json
run = json.load(open("run.json"))
print(run["kind"], run["format"], run["exit_code"], [c["status"] for c in run["capture"]["captures"]], run["compare"]["verdict"], run["explain"]["verdict"])'
# One device is only explained, a model without quantisation and outputs alone are only compared.
"$NPUDIFF" run "$cnn" -d exact -p zeros -o one --json 2>/dev/null | python -c '
import json, sys
print(sorted(json.load(sys.stdin)))'
run run "$GOLDEN/models/cnn.float.onnx" -d float64 -p zeros -o float -q
run run "$cnn" $devices -p zeros -o outputs -t outputs --lsb 3 -q
# A device that fails, files that are in the way, a fault, and words that are missing.
code_of run "$GOLDEN/failing/lrn.u16.onnx" -d cpu -d htp-sim:gen3 -p zeros -o failed -q
run run "$cnn" $devices -p uniform:3 -o a
code_of run "$cnn" -d exact -d emu:htp-v73,stale@residual/conv -p uniform:8 -o stale -q
run run "$cnn" $devices -p uniform:3 -o a --json --no
run run "$cnn"
run run "$cnn" -d cpu -o x.h5
run run missing.onnx -d cpu
# One page of all, and a file in the way that is no report.
code_of run "$cnn" $devices -p uniform:3 -o a --resume -q --report run.html
python -c 'import re; print(sorted(set(re.findall(r"<section id=\"(\w+)\"", open("run.html").read()))))'
echo mine >notes.html
run run "$cnn" $devices -p uniform:3 -o a --resume --report notes.html
