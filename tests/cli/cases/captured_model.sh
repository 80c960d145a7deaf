# The model of a capture is found by the path and the digest that it states; the dimensions are those of its inputs.
cp "$GOLDEN/models/cnn.w8a8.onnx" model.onnx
cp "$GOLDEN/models/cnn.float.onnx" float.onnx
mkdir captures elsewhere
"$NPUDIFF" capture model.onnx -d exact -p uniform:2 -o captures/a.h5 -q
"$NPUDIFF" capture float.onnx -d cpu -p uniform:2 -o captures/float.h5 -q
same() { cmp <("$NPUDIFF" explain "${@:2}" 2>&1) "$1" && echo "explain ${*:2}: the same"; }
"$NPUDIFF" explain --quantised model.onnx captures/a.h5 >named.txt
"$NPUDIFF" explain --quantised model.onnx --float float.onnx captures/a.h5 >both.txt
head -1 named.txt both.txt
same named.txt captures/a.h5
same named.txt --quantized model.onnx captures/a.h5
same both.txt --float float.onnx captures/a.h5
run explain --float float.onnx captures/float.h5 -q
# Beside the capture, and in the current folder.
mv model.onnx captures
run explain captures/a.h5 -q
mv captures/model.onnx elsewhere
(cd elsewhere && run explain ../captures/a.h5 -q)
# Gone, and a different one at its place.
run explain captures/a.h5
cp "$GOLDEN/models/cnn.w8a16.onnx" model.onnx
run explain captures/a.h5
echo no model >captures/model.onnx
run explain captures/a.h5 --json
run report --float float.onnx captures/a.h5 -o page.html
run report captures/a.h5 -o page.html
run explain --quantised elsewhere/model.onnx captures/a.h5 -q
rm model.onnx captures/model.onnx
# One of several captures knows where it is.
(cd elsewhere && "$NPUDIFF" capture model.onnx -d 'exact?rounding=floor' -p uniform:2 -o floor.h5 -q)
run explain captures/a.h5 elsewhere/floor.h5 -q
# Dimensions that are open: from the capture, unless --dim says otherwise.
dynamic=$GOLDEN/oracle/model/dynamic.onnx
"$NPUDIFF" capture "$dynamic" -d cpu -p ramp -o open.h5 -q --dim batch=2 --dim a:1=3 --dim width=4
run explain open.h5 -q
run explain --quantised "$dynamic" open.h5 -q
run explain open.h5 --dim width=5 -q
run explain open.h5 --dim depth=5 -q
run report open.h5 -o open.html
