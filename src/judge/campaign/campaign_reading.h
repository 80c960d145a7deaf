/* A campaign while it is read. Its files only: campaign.c and campaign.c. */
#ifndef ND_JUDGE_CAMPAIGN_READING_H
#define ND_JUDGE_CAMPAIGN_READING_H

#include "judge/campaign/campaign.h"

struct nd_campaign_reading {
    struct nd_yaml yaml;
    const char *folder; /* of the file: paths are relative to it */
    struct nd_campaign *campaign;
    struct nd_error *err;
};

#endif
