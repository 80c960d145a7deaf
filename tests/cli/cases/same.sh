# A capture against itself, and against a second one: the same, in words, in JSON and by exit code alone.
capture cnn.w8a8 -d cpu -p zeros -o a.h5
capture cnn.w8a8 -d cpu -p zeros -o b.h5
run compare a.h5 a.h5
run compare a.h5 b.h5 a.h5 -a
run compare a.h5 b.h5 -q
run compare a.h5 b.h5 --bitwise --lsb 0 --atol 0 --rtol 0
run verify a.h5 b.h5
