# NPUDIFF_CPU limits the evaluation, too, and changes nothing.
capture cnn.w8a8 -d exact -d 'exact?rounding=floor' -p uniform:3 -o captures
ln -s "$GOLDEN"/models/*.onnx .
options="--quantised cnn.w8a8.onnx --float cnn.float.onnx captures/exact.h5 captures/exact-rounding-floor.h5 --json"
"$NPUDIFF" explain $options >whole.json || echo "exit $?"
for cap in scalar avx2 avx512 neon; do
    NPUDIFF_CPU=$cap "$NPUDIFF" explain $options >other.json || echo "$cap: exit $?"
    cmp whole.json other.json
done
NPUDIFF_CPU=scalar run explain --quantised cnn.w8a8.onnx captures/exact.h5 -q
