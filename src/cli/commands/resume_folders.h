/* Going on with captures that were begun before. */
#ifndef ND_CLI_RESUME_FOLDERS_H
#define ND_CLI_RESUME_FOLDERS_H

#include "cli/options/fleet.h"

/* Of the cells whose captures are there: marks those that are complete as kept, with their outcome, and the
 * others as to be replaced. ND_E_FILE_EXISTS (ND_ERR_IO): a capture is complete, or holds samples, but of
 * something else than is asked for now; what nd_capture_open fails with. */
enum nd_status cli_resume(struct cli_fleet *fleet, struct nd_error *err);

#endif
