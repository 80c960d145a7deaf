# Logs of many runtimes (golden/logs/README.md): what failed, what fell back, and healthy ones that look alike.
for log in "$GOLDEN"/logs/*.log; do
    code=0
    "$NPUDIFF" logs "$log" >said || code=$?
    echo "== $(basename "$log"): exit $code"
    sed -n 1,2p said
done
: >empty.log
code=0
"$NPUDIFF" logs empty.log || code=$?
echo "exit $code"
"$NPUDIFF" logs "$GOLDEN/logs/litert-one-op-left.log" --json | grep '"outcome"'
echo "== a profile of ONNX Runtime"
kernel() {
    echo "{\"cat\": \"Node\", \"name\": \"$1_kernel_time\", \"dur\": 7, \"args\": {\"op_name\": \"$2\", \"provider\": \"$3\"}},"
}
run='{"cat": "Session", "name": "model_run", "dur": 30}'
echo "[$(kernel x_Q QuantizeLinear CPUExecutionProvider) $(kernel f_1 f_1 QNNExecutionProvider) $run]" >npu.json
echo "[$(kernel x_Q QuantizeLinear CPUExecutionProvider) $(kernel f_1 f_1 QNNExecutionProvider) $(kernel erf Erf CPUExecutionProvider) $run]" >erf.json
echo "[$(kernel erf Erf CPUExecutionProvider) $run]" >cpu.json
for profile in npu.json erf.json cpu.json; do
    code=0
    "$NPUDIFF" logs "$profile" || code=$?
    echo "exit $code"
done
"$NPUDIFF" latency erf.json || echo "exit $?"
