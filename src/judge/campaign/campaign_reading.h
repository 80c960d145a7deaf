/* A campaign while it is read. Its files only: campaign.c and campaign_devices.c. */
#ifndef ND_JUDGE_CAMPAIGN_READING_H
#define ND_JUDGE_CAMPAIGN_READING_H

#include "judge/campaign/campaign.h"

struct nd_campaign_reading {
    struct nd_yaml yaml;
    const char *folder; /* of the file: paths are relative to it */
    struct nd_campaign *campaign;
    struct nd_error *err;
};

/* *path is replaced by itself from the folder of the campaign. False: out of memory. */
bool nd_campaign_relocate(const char *folder, char **path);

/* Reads the list of devices into the campaign, whose models have been read. */
enum nd_status nd_campaign_read_devices(struct nd_campaign_reading *reading, const yaml_node_t *list);

#endif
