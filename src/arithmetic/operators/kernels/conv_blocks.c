/* Convolutions of doubles as products of matrices, block by block. */
#define ELEMENT double
#include "arithmetic/operators/kernels/conv_columns_template.h"

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

/* A matrix of columns stays in the second-level cache: 128 KiB; chosen. */
enum { MAX_COLUMNS = 96, MAX_ROWS = 170 };

double *nd_conv_blocks_room(void)
{
    return nd_calloc(MAX_COLUMNS * MAX_ROWS, sizeof(double));
}

bool nd_conv_is_matrix(const struct nd_window *w)
{
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        if (w->kernel[axis] != 1 || w->stride[axis] != 1 || w->pad_begin[axis] != 0 ||
            w->in[axis] != w->out[axis])
            return false;
    return true;
}

void nd_conv_blocks_add(const struct nd_conv_group *g, double *room)
{
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    const struct planes planes = {g->w, g->in, 0};
    size_t n_rows = g->n_in * (size_t)g->w->n_kernel, n_out = (size_t)g->w->n_out;
    bool is_plain = nd_conv_is_matrix(g->w);
    for (size_t from = 0; from < n_out; from += MAX_COLUMNS)
        for (size_t k = 0; k < n_rows; k += MAX_ROWS) {
            struct nd_gemm gemm = {.n = g->n_out,
                                   .n_k = n_rows - k < MAX_ROWS ? n_rows - k : MAX_ROWS,
                                   .m = n_out - from < MAX_COLUMNS ? n_out - from : MAX_COLUMNS,
                                   .a = g->weight + k,
                                   .b = is_plain ? g->in + k * n_out + from : room,
                                   .c = g->out + from,
                                   .a_row = n_rows,
                                   .b_row = is_plain ? n_out : MAX_COLUMNS,
                                   .c_row = n_out};
            const struct block block = {(ptrdiff_t)from, (ptrdiff_t)gemm.m};
            for (size_t i = 0; i < gemm.n_k && !is_plain; i++)
                copy_columns(&planes, k + i, block, room + i * MAX_COLUMNS);
            kernels->add(&gemm);
        }
}
