# Inputs that are pipes whose writer is silent: a signal that asks to stop ends the command.
mkfifo pipe pipe.onnx
sleep 60 >pipe &
writer=$!
exec 9<>pipe.onnx # a writer that says nothing
printf "models:\n- {name: m, quantised: pipe.onnx, probes: [zeros]}\ndevices: [cpu]\noutput: out\npolicy:\n- {gate: finalize}\n" >c.yaml
for campaign in pipe c.yaml; do
    "$NPUDIFF" qualify $campaign -q 9>&- &
    pid=$!
    # It waits in poll.
    for _ in $(seq 100); do
        grep -q poll /proc/$pid/wchan 2>/dev/null && break
        sleep 0.05
    done
    sleep 0.2
    kill -TERM $pid
    code=0
    for _ in $(seq 100); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL $pid 2>/dev/null || true # too late for a process that ended
    wait $pid 2>/dev/null || code=$?
    echo "qualify $campaign: exit $code"
done
kill $writer
wait $writer 2>/dev/null || true
rm -rf out
