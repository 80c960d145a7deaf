/* `npudiff fingerprint --campaign`: the datasheets of several devices and runtimes in one folder. */
#ifndef ND_CLI_FINGERPRINT_CAMPAIGN_H
#define ND_CLI_FINGERPRINT_CAMPAIGN_H

#include "lab/cli/take.h"

/* Takes the datasheets that are asked for and not in the folder, and prints the table of all that are. The exit
 * quantised value. */
int fingerprint_campaign(const struct fingerprint_values *values);

#endif
