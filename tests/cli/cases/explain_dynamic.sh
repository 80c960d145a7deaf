# A model whose shapes are open is captured and explained with the same --dim. Axes without a name, or named "?", are
# INPUT:AXIS, each for itself.
model=$GOLDEN/oracle/model/dynamic.onnx
"$NPUDIFF" capture "$model" -d cpu -p ramp -o x.h5 -q --dim batch=2 --dim a:1=3 --dim width=4
run explain --quantised "$model" x.h5
run explain --quantised "$model" x.h5 --dim batch=2 --dim a:1=3 --dim width=4
run explain --quantised "$model" x.h5 --dim batch=2 --dim a:1=3 --dim width=5
run explain --quantised "$model" x.h5 --dim batch
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$ROOT/tests/support "$PYTHON" -c '
import numpy as np, onnx_write as ow
nodes = [ow.node("DequantizeLinear", ["q", "s", "z"], ["x"]), ow.node("Relu", ["x"], ["r"]), ow.node("QuantizeLinear", ["r", "s", "z"], ["y"])]
shape = ("?", 3, "?")
open("open.onnx", "wb").write(ow.model(nodes, [ow.value_info("q", ow.U8, shape)], [ow.value_info("y", ow.U8, shape)],
                                       {"s": np.float32(0.1), "z": np.uint8(100)}))'
run capture open.onnx -d cpu -p ramp -o y.h5 -q
run capture open.onnx -d cpu -p ramp -o y.h5 -q --dim q:0=2 --dim q:2=4
run explain --quantised open.onnx y.h5 --dim q:0=2 --dim q:2=4 -q
