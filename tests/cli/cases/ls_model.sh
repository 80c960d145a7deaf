# The edges of a model: what a capture of it will hold, by the names that -t and the gates take.
run info --list "$GOLDEN/models/cnn.w8a8.onnx"
run info --list "$GOLDEN/models/mul.u8.onnx"
run info --list "$GOLDEN/cases/names.u8.onnx"
run info --list "$GOLDEN/bad/models/made_twice.onnx"
run info --list missing.onnx
"$NPUDIFF" info --list "$GOLDEN/models/mul.u8.onnx" --json | python -m json.tool
