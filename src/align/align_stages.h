/* The stages of nd_align. Each fills its part of the result. */
#ifndef ND_ALIGN_ALIGN_STAGES_H
#define ND_ALIGN_ALIGN_STAGES_H

#include "align/align_plan.h"
#include "npudiff/align.h"

enum { ND_ALIGN_MOST_PROGRAMS = 8 };

struct nd_align_job {
    const struct nd_align_options *options;
    const struct nd_model *model; /* as it came */
    struct nd_model *aligned;     /* as it was written and read again */
    const struct nd_unit_program *programs[ND_ALIGN_MOST_PROGRAMS];
    size_t n_programs;
    struct nd_alignment *result;
    size_t *layer_of_edge; /* [n_edges], SIZE_MAX where no layer makes the edge */
    char *folder;          /* for what nobody keeps */
};

/* prove.c: state, reason and proof of each layer of the aligned model. */
enum nd_status nd_align_prove(struct nd_align_job *job, struct nd_error *err);
/* price.c: outputs, and the classes of labelled samples. */
enum nd_status nd_align_price(struct nd_align_job *job, struct nd_error *err);
/* align_verify.c: runs the aligned model on the devices, and corrects the states by what was seen. */
enum nd_status nd_align_verify(struct nd_align_job *job, struct nd_error *err);

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err);

#endif
