/* What the agent does without, as far as kernel and C library know how to forbid it: runtime and model are not
 * ours. */
#ifndef ND_AGENT_CONFINE_H
#define ND_AGENT_CONFINE_H

#include "spool/job_file.h"

/* For a driver that needs more: NPUDIFF_CONFINE=off leaves the agent as it is. */
#define ND_CONFINE_VARIABLE "NPUDIFF_CONFINE"
#define ND_CONFINE_OFF "off"

/* From now on, in all threads, the process opens no network connection, starts no program, and changes no file
 * but in its working folder, in /dev (drivers), and beside the files that the job's options name. What is
 * loaded already stays open. Returns which of these hold, static: "network, programs, files", "network,
 * programs", "programs, files" or "nothing" (also where it was switched off). Call it before there are other
 * threads. */
const char *nd_agent_confine(const struct nd_job *job);

/* What it returned; "nothing" before. */
const char *nd_agent_confined(void);

#endif
