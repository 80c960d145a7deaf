/* The stages of nd_align. Each fills its part of the result. */
#ifndef ND_ALIGN_ALIGN_STAGES_H
#define ND_ALIGN_ALIGN_STAGES_H

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/operators/array.h"
#include "improve/align/align_plan.h"
#include "npudiff/improve/align.h"

enum { ND_ALIGN_MAX_ARITHMETICS = 8 };

struct nd_align_equalised;

struct nd_align_job {
    const struct nd_align_options *options;
    const struct nd_model *original; /* as it came */
    const struct nd_model
        *model;              /* the same, or with BatchNormalization folded, or equalised: what is planned */
    struct nd_model *folded; /* the latter, for who owns it */
    struct nd_align_equalised *equalised; /* from which the model is, if not NULL. Owned */
    const struct nd_model *aligned;       /* as it was written and read again */
    struct nd_model *read_again;          /* the same, for who owns it */
    const struct nd_layer_arithmetic *arithmetics[ND_ALIGN_MAX_ARITHMETICS];
    size_t n_arithmetics;
    struct nd_alignment *result;
    size_t *layer_of_tensor;      /* [n_edges], SIZE_MAX where no layer makes the tensor */
    struct nd_observed *observed; /* NULL: no inputs */
    char *folder;                 /* for what nobody keeps */
};

/* align_job.c. names NULL and n 0: the usual two. The layers are those of the model, without a state. */
enum nd_status nd_align_find_arithmetics(struct nd_align_job *job, const char *const *names, size_t n,
                                         struct nd_error *err);
enum nd_status nd_align_make_layers(struct nd_align_job *job, const struct nd_model *model,
                                    struct nd_error *err);

/* The model with BatchNormalization folded becomes what is planned, if there is something to fold. */
enum nd_status nd_align_fold(struct nd_align_job *job, struct nd_error *err);
/* Conv, ConvTranspose, Gemm or MatMul, with what follows. */
bool nd_align_is_product(const char *op_types);
/* A file in the job's folder. The caller frees *path. */
enum nd_status nd_align_name_file(struct nd_align_job *job, const char *name, char **path,
                                  struct nd_error *err);
/* Writes what is planned into the job's folder and reads it again. */
enum nd_status nd_align_write(struct nd_align_job *job, const struct nd_align_plan *plan, struct nd_error *err);
/* How many samples the accuracy cost is taken from; and the inputs of one of them, arrays of the model's
 * inputs. */
size_t nd_align_n_samples(const struct nd_align_options *options);
const struct nd_probe *nd_align_load_sample(const struct nd_align_job *job, size_t *sample,
                                            struct nd_array *inputs);

/* align.c: values that differ between the first arithmetic and the others, on the first samples. */
struct nd_align_contrast {
    size_t n_values, n_different; /* of the model's outputs */
    size_t n_tensors, n_tensors_different;
};

/* prove.c: state, reason and proof of each layer of the aligned model. */
enum nd_status nd_align_prove(struct nd_align_job *job, struct nd_error *err);
/* accuracy_cost.c: outputs, and the classes of labelled samples. noises [nd_align_n_samples], nullable: of each
 * sample the error of the aligned model by its signal, of the output that has most. */
enum nd_status nd_align_accuracy_cost(struct nd_align_job *job, double *noises, struct nd_error *err);
/* align_verify.c: runs the aligned model on the devices, and corrects the states by what was seen. */
enum nd_status nd_align_verify(struct nd_align_job *job, struct nd_error *err);
/* certificate.c: of what was found. The aligned model is in result->output. */
enum nd_status nd_align_certify(const struct nd_align_job *job, struct nd_error *err);

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err);

size_t nd_align_node_of(const struct nd_graph *graph, const Onnx__NodeProto *proto);

/* The DequantizeLinear of input i; ND_NO_INDEX: none. *is_shared: others read what it makes. */
size_t nd_align_dequantizer_of(const struct nd_graph *graph, size_t node, size_t i, bool *is_shared);

/* The operand as the float model has it, [n] values, owned by the caller; *out stays NULL where it has none
 * that fits. ND_ERR_MEMORY. */
enum nd_status nd_align_find_floats(const struct nd_align_plan *plan, size_t dequantizer,
                                    const struct nd_linear_input *input, double **out, struct nd_error *err);

#endif
