# The smallest gates that the report names let everything pass, and nothing below them does.
capture vit.w8a8 -d cpu -d 'cpu?optimisation=all' -p uniform:20 -o codes
captures="codes/cpu.h5 codes/cpu-optimisation-all.h5"
"$NPUDIFF" compare $captures -a --bitwise --width 200 >report.txt || echo "bitwise: exit $?"
read -r lsb ulp atol rtol < <(sed -n '/would pass/{n;n;p}' report.txt | awk '{print $2, $3, $4, $5}')
echo "--ulp $ulp"
code_of() { # without the numbers, which differ between processors
    local text=$1 code=0
    shift
    "$NPUDIFF" compare -q $captures "$@" || code=$?
    echo "$text: exit $code"
}
code_of "--lsb L" --lsb "$lsb"
code_of "--lsb L-1" --lsb $((lsb - 1))
code_of "--atol A" --atol "$atol"
code_of "--atol A*(1-1e-12)" --atol "$(python -c "print(repr($atol * (1 - 1e-12)))")"
