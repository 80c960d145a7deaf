# Names as HDF5 tools show them; what was recorded, or everything.
capture cnn.w8a8 -d cpu -p ones -o a.h5 -t 'logits,stem/*' --repeats 2
"$NPUDIFF" info --list -v a.h5 | awk '{print $1, $2, $3}'
echo
"$NPUDIFF" info --list a.h5 --all | awk '{print $1, $3}'
