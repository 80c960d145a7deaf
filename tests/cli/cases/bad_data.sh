# User data that does not fit the model's one input, image float32 [1,1,8,8].
python - <<'END'
import numpy as np
image = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 1, 8, 8)
np.save("image.npy", image)
np.save("shape.npy", image.reshape(4, 1, 4, 16))
np.save("flat.npy", image.reshape(4, 64))
np.save("double.npy", image.astype(np.float64))
np.save("codes.npy", image.astype(np.uint8))
np.save("none.npy", image[:0])
np.savez("labels.npz", image=image, labels=np.arange(3))
np.savez("float_labels.npz", image=image, labels=np.arange(4.0))
np.savez("other.npz", picture=image)
np.savez("extra.npz", image=image, mask=image)
image[:1].tofile("one.raw")
open("list.txt", "w").write("one.raw\nmissing.raw\n")
open("text.npy", "w").write("not an array\n")
END
try() { run capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu -o x -q "$@"; }
for file in shape.npy flat.npy double.npy codes.npy none.npy text.npy labels.npz float_labels.npz extra.npz \
    list.txt missing.npz; do
    try -p "data=$file"
done
try -p data=
try -p =image.npy
try -p random
try -p uniform:0
try -p uniform:x
try -p uniform:4:y
try -p ties:-1
try -p zeros:3
try -p zeros -p zeros
try -p zeros -p zeros=image.npy
[ ! -e x ] # not even an empty folder
# These do fit: the only array, under its own or another name.
try -p data=image.npy
try -p data=other.npz -f
