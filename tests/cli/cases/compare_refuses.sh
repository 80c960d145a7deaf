# What cannot be compared, and gates that cannot hold anything.
capture cnn.w8a8 -d cpu -p zeros -o a.h5
capture cnn.w8a16 -d cpu -p zeros -o b.h5
capture cnn.w8a8 -d cpu -p ones -o c.h5
run compare a.h5 missing.h5
run compare a.h5 b.h5
run compare a.h5 b.h5 --allow-different-models -q
run compare a.h5 c.h5
for gate in one -1 1.5 nothing:1 logits: :1 logits:x 'logits:1,' 99999999999999999999 ''; do
    run compare a.h5 a.h5 --lsb "$gate"
done
run compare a.h5 a.h5 --ulp logits:1
run compare a.h5 a.h5 --atol -0.5
run compare a.h5 a.h5 --atol nan
run compare a.h5 a.h5 --rtol 'missing*:1e-3'
run compare a.h5 a.h5 --rtol 1e-3,5
run compare a.h5 a.h5 --bitwise=nothing
run compare a.h5 a.h5 --bitwise= -q
run compare a.h5 a.h5 --bitwise=logits,stem/* -q
