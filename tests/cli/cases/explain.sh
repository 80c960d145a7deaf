# What a device makes itself: nothing, everything from the first unit on, nothing that can be told; and what is refused.
capture cnn.w8a8 -d exact -p uniform:3 -o exact.h5
capture cnn.w8a8 -d 'exact?rounding=floor' -p uniform:3 -o floor.h5
capture cnn.w8a8 -d exact -p uniform:3 --tensors outputs -o outputs.h5
capture cnn.w8a8 -d exact -p uniform:4 -o four.h5
ln -s "$GOLDEN"/models/*.onnx .
run explain --quantised cnn.w8a8.onnx exact.h5
run explain --quantised cnn.w8a8.onnx --float cnn.float.onnx floor.h5 exact.h5 --width 100
run explain --quantised cnn.w8a8.onnx floor.h5 -q
run explain --quantised cnn.w8a8.onnx outputs.h5
run explain --quantised cnn.w8a16.onnx exact.h5
run explain --quantised cnn.w8a8.onnx --float vit.float.onnx exact.h5 -q
run explain --quantised cnn.w8a8.onnx -p zeros exact.h5
run explain --quantised cnn.w8a8.onnx missing.h5
run explain exact.h5
# Equal names, and nothing that is quantised.
capture cnn.float -d float64 -p uniform:2 -o float.h5
run explain --quantised cnn.float.onnx --float cnn.float.onnx float.h5 -q
run explain --quantised cnn.float.onnx float.h5 -q
