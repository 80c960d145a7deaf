/* A policy: what a device must keep to for a model to ship. docs/reference/campaign.md has every key. */
#pragma once

#include <stdbool.h>

#include "core/documents/yaml_map.h"
#include "core/error.h"
#include "core/tensors/sha256.h"
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

/* A campaign: which models on which devices with which probes must keep to which policy.
 * docs/reference/campaign.md. */

struct nd_campaign_model {
    char *name;
    char *quantised;        /* paths, from the working folder */
    char *float_model;      /* NULL without one */
    struct nd_texts probes; /* as nd_probe_create takes them, with such paths */
    struct nd_texts dims;   /* "NAME=N" */
};

/* What goes to a device in place of a model: an EPContext model. */
struct nd_campaign_prepared {
    char *model; /* name */
    char *path;
};

struct nd_campaign_device {
    char *uri;
    size_t n_prepared;
    struct nd_campaign_prepared *prepared;
    yaml_mark_t mark;
};

struct nd_campaign {
    char *path, *name, *output; /* output: NULL when it names none */
    char sha256[65];            /* of the file */
    size_t n_models, n_devices;
    struct nd_campaign_model *models;
    struct nd_campaign_device *devices;
    char *tensors;
    size_t n_repeats;
    double margin, confidence, power;
    char *reference; /* ND_REFERENCE_QUANTISED, or a device's label */
    bool explain;
    struct nd_policy policy;
};

enum { ND_CAMPAIGN_MAX_BYTES = 1 << 20, ND_CAMPAIGN_MAX_DEVICES = 4096 };

/* Reads and checks the file by itself; models and devices are not looked at. A policy is needed unless
 * without_policy. ND_E_CAMPAIGN_FORMAT with file, line and column. The caller frees *out with
 * nd_campaign_deinit; on failure it is empty. */
enum nd_status nd_campaign_read(const char *path, bool without_policy, struct nd_campaign *out,
                                struct nd_error *err);
void nd_campaign_deinit(struct nd_campaign *campaign);

/* Files of a campaign that are made once. Beside each lies "<file>.key": the digest of what the file was made
 * of, and that of the file itself; for a file that is made again the next time also the word "again". It is
 * written after the file: whoever is killed between the two makes the file again. */

struct nd_keyed {
    bool is_current; /* it was made for this key, and is whole */
    bool is_final;   /* and need not be made again */
    char sha256[ND_SHA256_HEX_BYTES];
};

/* Whether the file is there, made for this key of 64 digits. A file that is missing, or changed since, is not
 * current; one that is there and cannot be read just now is an error (ND_E_FILE_OPEN, ND_E_FILE_READ). */
enum nd_status nd_keyed_look(const char *path, const char *key, struct nd_keyed *out, struct nd_error *err);

/* Writes the key of a file of that digest. */
enum nd_status nd_keyed_write(const char *path, const char *key, const char *sha256, bool is_final,
                              struct nd_error *err);

/* Whether nothing is there. What cannot be reached just now is not missing: reading it says why. */
bool nd_keyed_is_missing(const char *path);
