/* The tasks of a campaign as scripts, one file for each engine. */
#pragma once

#include "core/text/strbuf.h"
#include "npudiff/judge/campaign.h"

/* Appends the word as a shell reads it back. */
void nd_shell_put(struct nd_strbuf *out, const char *word);
