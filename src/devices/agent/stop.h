/* For tests only: an agent that stops at a point that the test names.
 *
 * A test that kills an agent, or cuts the link to it, "in the middle" must not depend on the machine's speed.
 * So it names a point in the file $NPUDIFF_TEST_AGENT_STOP, as one line:
 *
 *     stage NAME        when that stage begins: load, session, placement, run
 *     acknowledged N    when N samples of the first probe are stored and acknowledged
 *
 * There the agent removes the file and stops itself (SIGSTOP). It continues on SIGCONT. A test waits until the
 * process has stopped, does what it wants to do, and knows what is in the spool.
 *
 * This is harmless in production: without the variable nothing is read. Who may set the environment of an agent
 * may send it the signal, too. A stopped agent is one that hangs, which --stall-limit ends. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Stops here, if this is the point. */
void nd_stop_at_stage(const char *stage);

/* Whether the point is this many acknowledged samples of the first probe; then the caller acknowledges them and
 * calls nd_stop. */
bool nd_stop_is_at_sample(size_t probe, size_t n_samples);
void nd_stop(void);

/* The file, of the environment; NULL: none. */
const char *nd_stop_path(void);
