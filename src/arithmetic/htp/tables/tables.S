/* What the HTP makes of every float16: tools/oracles/read_half_tables.py. */
    .section .rodata, "a", %progbits
.macro table name
    .globl nd_half_\name\()_begin, nd_half_\name\()_end
    .hidden nd_half_\name\()_begin, nd_half_\name\()_end
nd_half_\name\()_begin:
    .incbin "\name\().z"
nd_half_\name\()_end:
    .byte 0
.endm
    table Cos
    table Exp
    table Log
    table Pow
    table Reciprocal
    table Sigmoid
    table Sin
    table Softplus
    table Sqrt
    table Tanh
    .section .note.GNU-stack, "", %progbits
