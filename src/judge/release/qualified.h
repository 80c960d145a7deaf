/* The members of a campaign's result in JSON. */
#ifndef ND_JUDGE_QUALIFIED_H
#define ND_JUDGE_QUALIFIED_H

#include "core/documents/json_fields.h"
#include "npudiff/judge/judge.h"

/* struct nd_qualified, without "kind" and "format", which come first in the file. */
extern const struct nd_members nd_qualified_members;

/* Of struct nd_qualified: the gates that are proposed, and for what nothing is. */
extern const struct nd_members nd_suggestion_members;

#endif
