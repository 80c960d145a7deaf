# Nothing installed: every message names the command that helps.
export NPUDIFF_RUNTIMES=$PWD/none
model=$GOLDEN/models/cnn.w8a8.onnx
run capture "$model" -d cpu -p zeros -o x
run capture "$model" -d htp-sim:gen3@qairt-2.51.0 -p zeros -o x
run capture "$model" -d cpu@qairt-9.9 -p zeros -o x
run runtimes
run devices
ls
mkdir -p none/qairt-2.51.0 none/qairt-2.50.40 none/mine none/nothing
cat >none/qairt-2.50.40/runtime.json <<END
{"onnxruntime": "1.29.0", "onnxruntime_qnn": "2.6.0", "ort_library": "gone.so", "provider_library": "gone.so",
 "backend_library": "gone.so"}
END
echo '{"onnxruntime": 7, "ort_library": ["x"]}' >none/mine/runtime.json
run runtimes
run capture "$model" -d cpu -p zeros -o x
run capture "$model" -d cpu@qairt-2.51.0 -p zeros -o x
run capture "$model" -d cpu@qairt-2.50.40 -p zeros -o x
run capture "$model" -d cpu@mine -p zeros -o x
ls
# Where they are looked for when nothing is said.
unset NPUDIFF_RUNTIMES
folders() { "$NPUDIFF" runtimes --json | python -c 'import json, sys; print(json.load(sys.stdin)["runtimes"][0]["folder"])'; }
folders
XDG_CACHE_HOME=$PWD/cache folders
XDG_CACHE_HOME=relative folders
