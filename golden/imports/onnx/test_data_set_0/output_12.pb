Bbfloat16J
6OW¿„å¤/Èsd