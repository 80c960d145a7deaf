# A predicted class is one of labels, or of an output that looks like classes and is said to be taken for them: of two outputs
# that which the labels fit; a name; never landmarks, whose largest value moves, too. What failed has no number of tensors.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$ROOT/tests/support "$PYTHON" -c '
import numpy as np, onnx_write as ow
for name, outputs in (("two", ("boxes", "scores")), ("named", ("class_logits",)), ("marks", ("landmarks",))):
    nodes = [ow.node("Mul", ["x", "s"], [o]) for o in outputs]
    shape = (1, 6)
    open(name + ".onnx", "wb").write(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)], [ow.value_info(o, ow.FLOAT, shape) for o in outputs],
                                              {"s": np.float32(1)}))
    x = np.random.default_rng(3).normal(size=(40, 6)).astype(np.float32)
    y = x.copy()
    y[7] = -y[7]
    best = np.argmax(x, 1)
    np.savez("in.npz", x=x)
    np.save("labels.npy", best)
    for side, last in (("a", x), ("b", y)):
        np.savez(f"{name}-{side}.npz", **{o: last if o == outputs[-1] else -x[:, ::-1] for o in outputs})'
for model in two named marks; do
    for side in a b; do
        labels=
        [ $model = two ] && labels="--labels labels.npy"
        "$NPUDIFF" import numpy $model-$side.npz --model $model.onnx $labels -p in --label $side -o $model-$side.h5 -q
    done
    run compare $model-a.h5 $model-b.h5
done
"$NPUDIFF" capture "$GOLDEN/cases/strange.u8.onnx" -d exact -d cpu -p ramp -o failed -q || echo "exit $?"
"$NPUDIFF" compare failed/*.h5 | sed -n "1p; /tensors   output/,/gen\|cpu  \|exact /p"
