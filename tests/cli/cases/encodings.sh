# Encodings as files, applied and compared, and what is wrong with them.
E="$GOLDEN/encodings"
run encodings list "$E/cnn.per-tensor.1.0.0.encodings"
run encodings list "$E/cnn.per-tensor.2.0.0.encodings"
run encodings diff "$E/cnn.per-tensor.0.6.1.encodings" "$E/cnn.per-tensor.1.0.0.encodings"
run encodings diff "$E/cnn.per-tensor.1.0.0.encodings" "$E/cnn.per-channel.1.0.0.encodings"
run encodings apply "$GOLDEN/models/cnn.float.onnx" "$E/cnn.per-tensor.1.0.0.encodings" -o qdq.onnx
run encodings diff "$E/cnn.per-tensor.1.0.0.encodings" qdq.onnx
run info --list qdq.onnx

# Of tensors that the model lacks.
cat > some.encodings <<'END'
{"version": "2.0.0", "encodings": [
  {"name": "image", "output_dtype": "uint8", "y_scale": 0.5},
  {"name": "nowhere", "output_dtype": "uint8", "y_scale": 0.5},
  {"name": "logits", "output_dtype": "float16", "y_scale": 1}]}
END
run encodings apply "$GOLDEN/models/cnn.float.onnx" some.encodings -o none.onnx
run encodings apply "$GOLDEN/models/cnn.float.onnx" some.encodings -o none.onnx --json 2>/dev/null
run encodings apply "$GOLDEN/models/cnn.float.onnx" some.encodings -o some.onnx --allow-unknown
run encodings apply "$GOLDEN/models/cnn.float.onnx" some.encodings -o strict.onnx --strict
run encodings apply "$GOLDEN/models/cnn.w8a8.onnx" some.encodings -o again.onnx --allow-unknown
run encodings apply "$GOLDEN/models/cnn.float.onnx" some.encodings

# Bad files and words.
printf '{"version": "1.0.0",\n "activation_encodings": [}' > broken.encodings
run encodings list broken.encodings
printf '{"version": "0.5.0"}' > old.encodings
run encodings list old.encodings
: > empty.encodings
run encodings list empty.encodings
run encodings list missing.encodings
run encodings list
run encodings show some.encodings
ls
