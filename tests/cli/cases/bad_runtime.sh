# A runtime whose libraries are not what they should be: the device fails, and its capture says so.
export NPUDIFF_RUNTIMES=$PWD/runtimes
mkdir -p runtimes/mine
echo 'this is no library' >runtimes/mine/text.so
cat >runtimes/mine/runtime.json <<END
{"onnxruntime": "0", "onnxruntime_qnn": "0", "ort_library": "text.so", "provider_library": "text.so",
 "backend_library": "text.so"}
END
run capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu@mine -p zeros -o x.h5 -q
"$NPUDIFF" info -v x.h5 | grep -E '^(x.h5|  stage|  code)'
