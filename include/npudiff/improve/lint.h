/* Static faults of quantised models: what an HTP computes wrongly, less precisely, or not at all, found in the
 * file, without a run.
 *
 * Every rule was measured in Qualcomm's simulator or is cited from a page of docs. A rule that needs a formula
 * uses the one that npudiff knows of the HTP (docs/science/htp-arithmetic.md). docs/reference/lint.md lists the
 * rules.
 *
 * Example:
 *
 *     static enum nd_status print_faults(const struct nd_model *model, struct nd_error *err)
 *     {
 *         struct nd_lint_options options;
 *         struct nd_lint *lint = NULL;
 *         nd_lint_options_init(&options);
 *         enum nd_status status = nd_lint_model(model, &options, &lint, err);
 *         for (size_t i = 0; status == ND_OK && i < lint->n_findings; i++)
 *             printf("%s: %s\n", lint->findings[i].tensor, lint->findings[i].message);
 *         nd_lint_destroy(&lint);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_LINT_H
#define NPUDIFF_LINT_H

#include "npudiff/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_lint_level {
    ND_LINT_ERROR,   /* the NPU gives wrong values, or refuses the model */
    ND_LINT_WARNING, /* it loses precision, or a part of the model leaves it */
    ND_LINT_NOTE,    /* worth knowing: values are right, or off by a step */
};

/* "error", "warning", "note": the words of SARIF. Static. */
ND_PUBLIC const char *nd_lint_level_name(enum nd_lint_level level);

/* Static, whole sentences. */
struct nd_lint_rule {
    const char *id; /* "bias-scale": never changes */
    enum nd_lint_level level;
    const char *what;     /* is wrong in the model */
    const char *why;      /* what the NPU makes of it */
    const char *where;    /* chipsets and SDKs on which it was seen */
    const char *cost;     /* as measured */
    const char *mend;     /* what to do */
    const char *evidence; /* page and anchor in docs/ */
    bool is_mended;       /* --fix can do it, at least in some cases */
};

/* All rules, errors first. Static. */
ND_PUBLIC const struct nd_lint_rule *nd_lint_rules(size_t *n);

/* Strings are owned. */
struct nd_lint_finding {
    const struct nd_lint_rule *rule;
    char *tensor; /* the layer: the name of what it makes */
    char *node;
    char *op_type;
    char *message;     /* what is wrong here, with numbers */
    double effect_lsb; /* how far values can be off, in steps of the output; NaN: not known */
    bool is_mended;    /* in the copy that was written */
    char *change;      /* what was changed there; NULL: nothing */
    char *obstacle; /* why a rule that mends some cases does not mend this one; NULL: it does, or mends none */
};

struct nd_lint_options {
    size_t struct_size; /* sizeof(struct nd_lint_options) */
    const char *output; /* a copy in which is mended what can be; NULL: none. None is written if nothing can */
    bool replace;       /* it may exist */
};
ND_PUBLIC void nd_lint_options_init_sized(struct nd_lint_options *options, size_t struct_size);
static inline void nd_lint_options_init(struct nd_lint_options *options)
{
    nd_lint_options_init_sized(options, sizeof *options);
}

struct nd_lint {
    size_t struct_size;
    char *model;  /* path */
    char *output; /* path; NULL: none was written */
    size_t n_layers;
    size_t n_qoperators;   /* nodes in QOperator format, which no rule examines */
    const char *qoperator; /* the type of the first, borrowed from the model; "" */
    size_t n_findings;
    struct nd_lint_finding *findings; /* errors first, then in the order of the graph */
    size_t n_errors, n_warnings, n_notes;
    size_t n_left; /* errors and warnings that are not mended */
};

/* Reads the model and applies all rules. Dimensions may be open. The caller destroys *out.
 *
 * ND_ERR_UNSUPPORTED (ND_E_LINT_FLOAT): a model without QuantizeLinear and DequantizeLinear in which nothing is
 * found; ND_ERR_IO: the output exists or cannot be written, or external data cannot be read; ND_ERR_FORMAT:
 * constants that contradict themselves; ND_ERR_MEMORY. Nothing is left half-written. Thread-safe. */
ND_PUBLIC enum nd_status nd_lint_model(const struct nd_model *model, const struct nd_lint_options *options,
                                       struct nd_lint **out, struct nd_error *err);

/* Whether there was a layer to examine: without one a model without findings is not clean. */
ND_PUBLIC bool nd_lint_has_examined(const struct nd_lint *lint);

/* NULL in *lint is accepted. */
ND_PUBLIC void nd_lint_destroy(struct nd_lint **lint);

#ifdef __cplusplus
}
#endif
#endif
