# A model whose shapes are open can be captured with --dim, and is not explained: nobody says what its edges are.
model=$GOLDEN/oracle/model/dynamic.onnx
"$NPUDIFF" capture "$model" -d cpu -p ramp -o x.h5 -q --dim batch=2 --dim a:1=3 --dim width=4
run explain --quantised "$model" x.h5
