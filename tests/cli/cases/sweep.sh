# Which options change bits: text, everything, JSON; options that change nothing; values that fail; what is refused. The exact
# device needs no runtime.
model=$GOLDEN/models/cnn.w8a8.onnx
# How long a time is decides how wide its column is.
hide_times() { sed -E 's/[0-9.]+ ms/N ms/g; s/ms +/ms /; s/ +TIME */ TIME /; s/TIME $/TIME/'; }
("$NPUDIFF" sweep "$model" -d exact --set rounding=floor,half-even -p ramp -p uniform:4 -v 2>/dev/null || echo "exit $?") | hide_times
("$NPUDIFF" sweep "$model" -d exact --set rounding=half-even -p uniform:4 --float "$GOLDEN/models/cnn.float.onnx" 2>/dev/null || echo "exit $?") | hide_times
"$NPUDIFF" sweep "$model" -d exact --set rounding=floor -p uniform:4 --json >document.json 2>/dev/null || echo "exit $?"
python - <<'END'
import json
document = json.load(open("document.json"))
print(document["result"], document["changing"], [(s["option"], s["value"], s["result"], s["first_difference"]) for s in document["settings"]])
as_it_is, floor = document["settings"]
assert as_it_is["tensors_different"] == 0 and floor["tensors_different"] > 0 and floor["output_share"] > 0 and floor["output_lsb"] > 0
END
run sweep "$model" -d 'exact?rounding=floor' --set rounding=floor -p uniform:4 -q
# No defaults, no values, an option that the device has not, one that may name a file, a device that fails, and none.
run sweep "$model" -d exact -p uniform:4
run sweep "$model" -d exact --set rounding -p uniform:4 -q
run sweep "$model" -d exact --set rounding= -p uniform:4 -q
run sweep "$model" -d exact --set rounding=up -p uniform:4 -q
run sweep "$model" -d exact --set colour=red -p uniform:4 -q
run sweep "$model" -p uniform:4
run sweep missing.onnx -d exact
mkdir -p runtimes/mine
echo 'this is no library' >runtimes/mine/text.so
cat >runtimes/mine/runtime.json <<END
{"onnxruntime": "0", "onnxruntime_qnn": "0", "ort_library": "text.so", "provider_library": "text.so",
 "backend_library": "text.so"}
END
export NPUDIFF_RUNTIMES=$PWD/runtimes
run sweep "$model" -d cpu@mine -p uniform:4 -q
run sweep "$model" -d htp-sim:gen3@mine --set op_packages=x.so -p uniform:4 -q
