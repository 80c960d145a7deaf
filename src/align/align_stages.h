/* The stages of nd_align. Each fills its part of the result. */
#ifndef ND_ALIGN_ALIGN_STAGES_H
#define ND_ALIGN_ALIGN_STAGES_H

#include "align/align_plan.h"
#include "npudiff/align.h"

enum { ND_ALIGN_MOST_PROGRAMS = 8 };

struct nd_align_job {
    const struct nd_align_options *options;
    const struct nd_model *model;   /* as it came */
    const struct nd_model *aligned; /* as it was written and read again */
    struct nd_model *read_again;    /* the same, for who owns it */
    const struct nd_unit_program *programs[ND_ALIGN_MOST_PROGRAMS];
    size_t n_programs;
    struct nd_alignment *result;
    size_t *layer_of_edge; /* [n_edges], SIZE_MAX where no layer makes the edge */
    char *folder;          /* for what nobody keeps */
};

/* align_job.c. names NULL and n 0: the usual two. The layers are those of the model, without a state. */
enum nd_status nd_align_find_programs(struct nd_align_job *job, const char *const *names, size_t n,
                                      struct nd_error *err);
enum nd_status nd_align_make_layers(struct nd_align_job *job, const struct nd_model *model,
                                    struct nd_error *err);
/* Sizes of `from` for the open dimensions of `to`, which has the same inputs. */
enum nd_status nd_align_take_dims(const struct nd_model *from, struct nd_model *to, struct nd_error *err);
enum nd_status nd_align_set_dim(struct nd_model *model, size_t input, int axis, int64_t n,
                                struct nd_error *err);
/* Counts the states of the layers, and sets the end by them. */
void nd_align_count_states(struct nd_alignment *result);

/* prove.c: state, reason and proof of each layer of the aligned model. */
enum nd_status nd_align_prove(struct nd_align_job *job, struct nd_error *err);
/* price.c: outputs, and the classes of labelled samples. */
enum nd_status nd_align_price(struct nd_align_job *job, struct nd_error *err);
/* align_verify.c: runs the aligned model on the devices, and corrects the states by what was seen. */
enum nd_status nd_align_verify(struct nd_align_job *job, struct nd_error *err);
/* certificate_write.c: of what was found. The aligned model is in result->output. */
enum nd_status nd_align_certify(const struct nd_align_job *job, struct nd_error *err);

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err);

#endif
