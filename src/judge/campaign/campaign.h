/* A campaign: which models on which devices with which probes must keep to which policy.
 * docs/reference/campaign.md. */
#ifndef ND_JUDGE_CAMPAIGN_H
#define ND_JUDGE_CAMPAIGN_H

#include "judge/campaign/policy.h"

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

#endif
