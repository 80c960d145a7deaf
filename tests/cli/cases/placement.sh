# Mistakes in asking where a model runs, and a device that is no NPU.
"$NPUDIFF" placement "$GOLDEN/cases/erf.u8.onnx" || echo "exit code $?"
"$NPUDIFF" placement "$GOLDEN/cases/erf.u8.onnx" -d cpu --dim batch || echo "exit code $?"
"$NPUDIFF" placement nothing.onnx -d cpu || echo "exit code $?"
"$NPUDIFF" placement "$GOLDEN/cases/erf.u8.onnx" nothing.h5 || echo "exit code $?"
"$NPUDIFF" placement "$GOLDEN/cases/erf.u8.onnx" -d cpu || echo "exit code $?"
