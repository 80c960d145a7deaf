# A named pipe in place of each file: it is refused, or read and written; and while its other end is silent, a
# signal that asks to stop ends the command.
m=$GOLDEN/models/mul.u8.onnx
"$NPUDIFF" capture "$m" -d exact -p uniform:2 -q -o a.h5
"$NPUDIFF" golden add store a.h5 -q
mkfifo pipe pipe.json pipe.npz silent
mkdir folder
mkfifo folder/result.json
exec 8<>pipe 7<>pipe.json 6<>pipe.npz 5<>folder/result.json # writers that say nothing

try() {
    "$NPUDIFF" "$@" >out.txt 2>err.txt 5>&- 6>&- 7>&- 8>&- &
    pid=$!
    # Until it ends, or waits for the other end of the pipe.
    for _ in $(seq 400); do
        kill -0 $pid 2>/dev/null || break
        grep -q 'poll\|nanosleep\|pipe\|partner\|fifo' /proc/$pid/wchan 2>/dev/null && break
        sleep 0.05
    done
    sleep 0.1
    kill -TERM $pid 2>/dev/null || true
    for _ in $(seq 100); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL $pid 2>/dev/null || true # too late for a process that ended
    code=0
    wait $pid 2>/dev/null || code=$?
    case $code in
    2) echo "npudiff $*: $(sed -n '1s/^npudiff[a-z ]*: //p' err.txt)" ;;
    143) echo "npudiff $*: stopped" ;;
    *) echo "npudiff $*: exit $code: $(cat err.txt)" ;;
    esac
}

echo "a capture"
for command in info ls verify "bundle -o x.json" config "golden add store" "golden check store" "compare a.h5" \
    "explain --quantised $m" "triage --against store" "export aihub -o x.h5" "placement $m"; do
    # shellcheck disable=SC2086
    try $command pipe
done
echo "a certificate, a result, a page"
try verify pipe.json "$m"
try report pipe -o x.html
try report folder -o x.html
try compare a.h5 a.h5 --report silent
try explain --quantised "$m" a.h5 --report silent
try lint "$m" --sarif silent
echo "a model"
for command in "ls --json" lint "align -o x.onnx" "reduce -d cpu -o x" "capture -d exact -o x.h5" "prepare --chipset gen3 -o x" \
    "sweep -d exact -p zeros" "placement -d exact" "init -d exact --no-phones -o x.yaml" "explain a.h5 --quantised" \
    "explain --quantised $m a.h5 --float" "encodings list" "promote -d exact -p zeros -o x.onnx --float $m"; do
    # shellcheck disable=SC2086
    try $command pipe
done
echo "other files"
try capture "$m" -d exact -p x=pipe.npz -o x.h5
try capture "$m" -d exact -p zeros --htp-config pipe -o x.h5
try encodings apply "$GOLDEN/models/cnn.float.onnx" pipe -o x.onnx
try import numpy pipe.npz -o x.h5
try import aihub pipe -o x.h5
try import polygraphy pipe -o x.h5
try logs pipe
try latency pipe a.h5
try runtimes add pipe
try fingerprint --diff pipe pipe
try qualify pipe -o x

echo "what is read from a pipe, and written to one"
cat "$m" >silent &
"$NPUDIFF" lint silent
cat silent >page.html &
"$NPUDIFF" compare a.h5 a.h5 --report silent -q
wait
head -c 15 page.html
