/* A policy: what a device must keep to for a model to ship. docs/reference/campaign.md has every key. */
#ifndef ND_JUDGE_POLICY_H
#define ND_JUDGE_POLICY_H

#include "core/documents/yaml_map.h"
#include "npudiff/record/probe.h"

enum nd_policy_gate {
    ND_POLICY_BIT_EQUAL,
    ND_POLICY_LSB,
    ND_POLICY_SHARE,
    ND_POLICY_ULP,
    ND_POLICY_SQNR,
    ND_POLICY_ACCURACY,
    ND_POLICY_AGREEMENT,
    ND_POLICY_TARGET,
    ND_POLICY_FALLBACK,
    ND_POLICY_LATENCY,
    ND_POLICY_FINALIZE,
    ND_POLICY_N_GATES,
};

/* "bit-equal-to", "lsb", ...: as the key `gate` spells it. Static. */
const char *nd_policy_gate_name(enum nd_policy_gate gate);

/* A reference that is no device of the campaign. */
#define ND_REFERENCE_QUANTISED "quantised"
#define ND_REFERENCE_FLOAT "float"

/* Of the error against a target tensor. */
#define ND_METRIC_MEAN_ERROR "mean-error"
#define ND_METRIC_SQNR "sqnr"

/* What holds where a gate, or a campaign, says nothing else. */
struct nd_policy_defaults {
    const char *reference; /* borrowed */
    double margin, confidence, power;
};

/* One gate. Patterns that are not given match everything. */
struct nd_policy_rule {
    enum nd_policy_gate gate;
    struct nd_texts models, devices, tensors, probes;
    struct nd_texts allow; /* fallback: nodes or operator types */
    char *to;              /* ND_REFERENCE_..., or a device's label */
    double max;            /* lsb, share, ulp, target-error */
    char *metric;          /* target-error: ND_METRIC_..., else NULL */
    double min;            /* sqnr in dB, agreement */
    double warn, fail;     /* latency-cv */
    double margin, confidence, power;
    char *reason, *owner, *until; /* of a loosening; all or none */
    yaml_mark_t mark;             /* where it begins */
};

struct nd_policy {
    size_t n;
    struct nd_policy_rule *rules;
};

/* Reads the list of gates. Free with nd_policy_deinit, after a failure, too. */
enum nd_status nd_policy_read(struct nd_yaml *yaml, const yaml_node_t *node,
                              const struct nd_policy_defaults *defaults, struct nd_policy *out,
                              struct nd_error *err);
void nd_policy_deinit(struct nd_policy *policy);

/* "lsb <= 1 on 'conv*' against quantised" in new memory, or NULL. */
char *nd_policy_describe(const struct nd_policy_rule *rule);

/* Whole numbers as such ("20"), others so that they read back the same. buf needs 32 bytes; returns it. */
char *nd_policy_format_number(double value, char buf[static 32]);

/* Today as YYYY-MM-DD (UTC), by SOURCE_DATE_EPOCH where that is set. */
void nd_policy_today(char out[static 16]);

/* Whether the loosening is past its `until`. */
bool nd_policy_has_expired(const struct nd_policy_rule *rule, const char *today);

/* Whether the gate looks at tensors (and then at which ones), at probes. */
bool nd_policy_has_tensors(enum nd_policy_gate gate);
bool nd_policy_has_probes(enum nd_policy_gate gate);

/* Judged by statistics on every sample, not by the comparison; the reference may be the float model. */
bool nd_policy_is_statistical(enum nd_policy_gate gate);

/* ---- what it is about ---- */

struct nd_scope_tensor {
    const char *name;
    bool may_be_integer, may_be_float; /* both while the type is not known */
    bool is_output;
};

struct nd_scope_probe {
    const char *name;
    bool has_labels;
    const struct nd_probe *goals; /* whose target tensors count; NULL: none */
};

struct nd_scope_model {
    const char *name;
    bool has_float;
    size_t n_tensors, n_probes;
    const struct nd_scope_tensor *tensors;
    const struct nd_scope_probe *probes;
};

struct nd_scope {
    size_t n_models, n_devices;
    const struct nd_scope_model *models;
    const char *const *devices; /* labels */
};

/* One place that a gate may be about. Where the gate has no tensors or probes, they are not looked at. */
struct nd_policy_cell {
    const char *model, *device;
    const struct nd_scope_tensor *tensor;
    const struct nd_scope_probe *probe;
};

/* Whether rule r judges the cell: it covers it, and no later rule loosens it there. */
bool nd_policy_governs(const struct nd_policy *policy, size_t r, const struct nd_policy_cell *cell);

/* Refuses gates and patterns that match nothing, references that are not there, and loosenings that do not
 * say reason, owner and until (ND_E_CAMPAIGN_POLICY). path is for messages. */
enum nd_status nd_policy_check(const struct nd_policy *policy, const struct nd_scope *scope, const char *path,
                               struct nd_error *err);

#endif
