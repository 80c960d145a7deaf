# The edges of a model: what a capture of it will hold, by the names that -t and the gates take.
run ls "$GOLDEN/models/cnn.w8a8.onnx"
run ls "$GOLDEN/models/mul.u8.onnx"
run ls "$GOLDEN/cases/names.u8.onnx"
run ls "$GOLDEN/bad/models/made_twice.onnx"
run ls missing.onnx
"$NPUDIFF" ls "$GOLDEN/models/mul.u8.onnx" --json | python -m json.tool
