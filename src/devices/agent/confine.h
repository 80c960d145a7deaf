/* What the agent does without, as far as kernel and C library can forbid it: the runtime is not ours. */
#pragma once

#include "devices/agent/spool/job_file.h"

/* For a driver that needs more: NPUDIFF_CONFINE=off leaves the agent as it is. */
#define ND_CONFINE_VARIABLE "NPUDIFF_CONFINE"
#define ND_CONFINE_OFF "off"

/* From now on, in all threads, the process opens no network connection, starts no program, and changes no file
 * but in its working folder, in /dev (drivers), and beside the files that the job's options name. What is
 * loaded already stays open. Returns which of these hold, static: some of "network, programs, files", or
 * "nothing" (also where it was switched off). Call it before there are other threads.
 *
 * starts_program: the runtime is a program of its own. Programs can then be started until
 * nd_agent_confine_programs. */
const char *nd_agent_confine(const struct nd_agent_job *job, bool starts_program);

/* From now on no program can be started by this process or by one that it has started. Call it when the runtime
 * runs, and before it sees the model. Where programs are forbidden already, this does nothing. */
void nd_agent_confine_programs(void);

/* What it returned; "nothing" before. */
const char *nd_agent_confined(void);
