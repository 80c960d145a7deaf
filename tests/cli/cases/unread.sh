# Standard output is a pipe that is full and that nobody reads: a signal that asks to stop ends the command, also where it
# catches signals to clean up.
m=$GOLDEN/models/mul.u8.onnx
"$NPUDIFF" capture "$m" -d exact -d emu:floor -p uniform:2 -q -o runs
mkfifo pipe
exec 9<>pipe
size=$(python3 -c "import fcntl; print(fcntl.fcntl(9, 1032))") # F_GETPIPE_SZ
head -c "$size" /dev/zero >&9
for command in "ls runs/exact.h5" "compare runs/exact.h5 runs/emu-floor.h5" "compare runs/exact.h5 runs/emu-floor.h5 --json" \
    "explain --quantised $m runs/exact.h5" "align $m" "qualify --help"; do
    # shellcheck disable=SC2086
    "$NPUDIFF" $command >&9 2>err.txt 9>&- &
    pid=$!
    # Until it waits for room: in poll, behind all that it has to do.
    for _ in $(seq 400); do
        kill -0 $pid 2>/dev/null || break
        grep -q 'poll\|pipe' /proc/$pid/wchan 2>/dev/null && [ -z "$(cat /proc/$pid/task/$pid/children 2>/dev/null)" ] && break
        sleep 0.05
    done
    sleep 0.2
    kill -TERM $pid 2>/dev/null || true
    for _ in $(seq 200); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL $pid 2>/dev/null || true # too late for a process that ended
    code=0
    wait $pid 2>/dev/null || code=$?
    echo "${command%% *}: exit $code"
done
rm -rf runs x.onnx
