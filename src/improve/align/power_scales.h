/* Scales with which a product is multiplied by a power of two. */
#ifndef ND_ALIGN_POWER_SCALES_H
#define ND_ALIGN_POWER_SCALES_H

#include <stdbool.h>
#include <stddef.h>

/* What a product has, and what may change. Scales of weights per channel, or one. */
struct nd_align_task {
    double scale_x, scale_y;
    const double *least; /* [n]: the least scale with which the channel's weights fit into 8 signed bits */
    size_t n;
    bool is_w_settled; /* calculated: least is their scale */
    bool is_y_settled;
    double n_rows; /* products that make one sum */
    double rms_x;  /* of the quantised values of x less their zero point */
};
/* scale_x scale_w[c] / scale_y = 2^-exponent[c], but for the rounding of float32, by which it is never more. */
struct nd_align_scales {
    float scale_y;
    float *scale_w;                      /* [n], of the caller */
    int *exponent;                       /* [n], of the caller */
    double output_factor, weight_factor; /* coarser by that; of the weights the root of the mean square */
};

/* False: nothing may change that has to. */
bool nd_align_choose_scales(const struct nd_align_task *task, struct nd_align_scales *out);

#endif
