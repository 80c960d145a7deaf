# A log of the shape that a phone gives: one root, followers behind it, one of which nobody can tell.
fail() {
    echo "11-21 20:33:01.$1  612  713 E QnnDsp  : graph_prepare.cc:203:ERROR:could not create op: $2"
    echo "11-21 20:33:01.$1  612  713 E QnnDsp  : graph_prepare.cc:1187:ERROR:Op 0x10280000$1 preparation failed with err:-1"
    echo "11-21 20:33:01.$1  612  713 E QnnDsp  : \"$3\" generated: could not create op"
}
{
    fail 101 q::linearclip stem/conv_token_4
    fail 102 q::flat_to_vtcm stem/relu
    fail 103 q::flat_to_vtcm head
    fail 104 q::QNN_Elu node_token_15
    echo "Failed to finalize QNN graph. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related error., Code: 1002"
    echo "E/QnnDsp  (  612): Unknown Key = devices/0/soc_model passed in config"
    echo "Fusing operation Conv_3 with Relu_4"
    echo "nobody knows this line"
} >phone.log
code=0
"$NPUDIFF" logs phone.log || code=$?
echo "exit $code"
echo "== the model tells who follows whom"
"$NPUDIFF" logs phone.log --kind fusion --model "$GOLDEN/models/cnn.float.onnx" || true
echo "== the unknown lines, and notes"
"$NPUDIFF" logs phone.log --kind fusion --unknown | sed -n 1,2p
echo "== JSON"
"$NPUDIFF" logs phone.log --kind version --json || true
echo "== a log without failures, in UTF-16 with its mark"
python -c 'open("wide.log", "wb").write("Fusing operation Conv_3\r\n\u20ac\n".encode("utf-16"))'
"$NPUDIFF" logs wide.log -v
echo "== lines of the field: executorch 1430, onnxruntime 24876 and 25422, and what nobody knows"
cat >field.log <<'LOG'
 0.0ms [ ERROR ] initial_sequencer_dp.cc:149:ERROR:A single op, "q::ForceFormat_Crouton" (Op ID: 1165b600001430), requires 0x2400000 bytes of TCM, which is greater than the TCM size of 0x800000!
tcm_migration.cc:2088:ERROR:Operator named q::*InputSlicePad (0x1654900000002) not sufficiently tiled to fit in TCM. Requires 12441600 bytes
Failed to finalize QNN graph. Error code: 1002 at location qnn_model.cc:167 FinalizeGraphs
Status Message: QNN graph execute error. Error code: 6001
QnnDsp <W> Arch 68 set by custom config is different from arch associated with SoC 57, will overwrite it to 75
Some nodes were not assigned to the preferred execution providers which may or may not have an negative impact
QnnDsp <I> QnnDevice_getInfrastructure done. status 0x0
LOG
code=0
"$NPUDIFF" logs field.log || code=$?
echo "exit $code"
echo "QnnDsp <E> a call of tomorrow failed with err 0x138b" >unknown.log
code=0
"$NPUDIFF" logs unknown.log || code=$?
echo "exit $code"
echo "== nothing, and a file that is none"
: >empty.log
for arguments in empty.log "missing.log" "--kind fallbacks empty.log" "--model missing.onnx empty.log" "."; do
    code=0
    "$NPUDIFF" logs $arguments 2>&1 || code=$?
    echo "exit $code"
done
