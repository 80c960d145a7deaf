
Bfloat16J¾"˜áğÀ^SO½¾