# Values that an option does not take. Nothing is read before they are checked.
try() { run capture missing.onnx -d cpu -o x "$@"; }
try --repeats 0
try --repeats -1
try --repeats 2x
try --repeats 10001
try --repeats ''
try --repeats 99999999999999999999
try --store some
try --deflate 10
try --deflate 1.0
try --jobs 0
try --time-limit 0
try --time-limit -1
try --time-limit nan
try --time-limit inf
try --time-limit 1,5
try --stall-limit 5s
try --memory-limit 0
try --memory-limit 64M
try --log-level loud
run compare a.h5 b.h5 --width 39
run compare a.h5 b.h5 --width 1001
compare() { run compare a.h5 b.h5 "$@"; }
compare --worst 1001
compare --worst -1
compare --per-channel 8
compare --per-channel -9
compare --per-channel last
compare --ulp-in int8
compare --ulp-in fp16
compare --threads 257
compare --memory 15
compare --matrix shares
compare --matrix share:
compare --cut tensors
compare --cut rows --part 1/2 --json
for part in 0/2 3/2 1 /2 1/ 1/0 -1/2 1/65537 1/2/3 ''; do
    compare --json --part "$part"
done
compare --part 1/2
compare --part 1/2 --json -q
compare --part 1/2 --json --merge part.json
compare --merge missing.json
ls
