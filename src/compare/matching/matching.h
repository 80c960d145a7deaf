/* Which tensor, probe and sample of one capture stands beside which of another.
 * docs/reference/metrics.md#alignment. */
#pragma once

#include "capture/read/view.h"
#include "npudiff/compare/compare.h"

/* All tensors and probes of all captures: those of captures[0] in its order, then those that only later ones
 * have. The tables are indexed [item * n_captures + capture] and hold SIZE_MAX where a capture has no such
 * item. */
struct nd_aligned_captures {
    const struct nd_capture *const *captures; /* borrowed */
    size_t n_captures;
    size_t n_tensors, n_probes;
    size_t n_left_out; /* tensors that nd_matching_select took away */
    size_t *tensors;
    size_t *probes;
    const char **tensor_names; /* borrowed from the captures */
    const char **probe_names;
    struct nd_digest **inputs; /* [probe * n_captures + capture]: digest of each sample's inputs, or NULL */
    bool unknown_models;       /* a capture does not say of which model it is */
    bool unknown_inputs;       /* a capture does not say what a probe fed that others say it of */
};

/* ND_E_COMPARE_MODEL where two captures say that they are of different models, unless allow_different_models,
 * then *different_models says whether they differ. The captures stay borrowed. */
enum nd_status nd_matching_make(const struct nd_capture *const *captures, size_t n, bool allow_different_models,
                                struct nd_aligned_captures *out, bool *different_models, struct nd_error *err);
/* Leaves only the tensors that spec names: "outputs" (what any capture calls an output of the model), names and
 * patterns with commas between them; NULL and "all" leave every tensor. ND_ERR_USAGE (ND_E_OPTION_VALUE): a
 * pattern matches no tensor. */
enum nd_status nd_matching_select(struct nd_aligned_captures *alignment, const char *spec,
                                  struct nd_error *err);
/* Leaves only the probes of these names or patterns; n = 0 leaves every probe. ND_ERR_USAGE
 * (ND_E_OPTION_VALUE): one matches no probe. */
enum nd_status nd_matching_select_probes(struct nd_aligned_captures *alignment, const char *const *patterns,
                                         size_t n, struct nd_error *err);
void nd_matching_deinit(struct nd_aligned_captures *alignment);

/* The tensor or probe of one capture, NULL where it has none. */
const struct nd_tensor *nd_aligned_tensor(const struct nd_aligned_captures *alignment, size_t tensor,
                                          size_t capture);
const struct nd_capture_probe *nd_aligned_probe(const struct nd_aligned_captures *alignment, size_t probe,
                                                size_t capture);

/* The values of a tensor that the capture has, in a probe that it has; and whether they are stored. */
struct nd_probe_values nd_aligned_values(const struct nd_aligned_captures *alignment, size_t tensor,
                                         size_t probe, size_t capture);
bool nd_aligned_has_values(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe,
                           size_t capture);

/* Digest of one sample of the first repeat. Both must exist, sample < n_samples. */
struct nd_digest nd_aligned_digest(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe,
                                   size_t capture, size_t sample);

/* Whether a sample of the first repeat has the same digest in both captures. Where both state one digest for
 * all and these are equal, no digest is read. */
bool nd_aligned_is_equal(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe, size_t a,
                         size_t b, size_t sample);
/* nd_capture_tensor_digest of a tensor: NULL where it is not stated. */
const struct nd_digest *nd_aligned_tensor_digest(const struct nd_aligned_captures *alignment, size_t tensor,
                                                 size_t probe, size_t capture);

/* Whether two tensors can be compared element by element: same shape, and the same type (integers: and
 * quantisation) or, with *is_mixed set, two types of which both have real values: floats, and quantised values
 * against floats. When not, *reason is new text that the caller frees ("uint8 against int8"). Either may be
 * NULL: the reason then says that the tensor is missing. ND_ERR_MEMORY is the only failure. */
enum nd_status nd_align_tensors(const struct nd_tensor *ref, const struct nd_tensor *test, bool *is_mixed,
                                char **reason, struct nd_error *err);

/* Whether equal bytes mean equal tensors: comparable and not mixed. */
enum nd_status nd_align_is_alike(const struct nd_tensor *a, const struct nd_tensor *b, bool *is_alike,
                                 struct nd_error *err);

/* How many leading samples of a probe two captures have in common and were fed alike, and why not more: *reason
 * is new text or NULL when both sides are whole. */
enum nd_status nd_align_samples(const struct nd_aligned_captures *alignment, size_t probe, size_t ref,
                                size_t test, size_t *n_common, char **reason, struct nd_error *err);

/* The same number alone. */
size_t nd_align_n_common(const struct nd_aligned_captures *alignment, size_t probe, size_t ref, size_t test);

/* Replaces *text (freed first, may be NULL) by the formatted string. ND_ERR_MEMORY leaves *text NULL. */
enum nd_status nd_text_set(char **text, struct nd_error *err, const char *fmt, ...) ND_PRINTF(3, 4);
