#pragma once

#include "explain/identify/identify.h"

#define ND_IDENTIFY_CONTAMINATION 0.01 /* the most, by +-1 */
#define ND_IDENTIFY_NATS 0x1p20        /* how costs are counted */
#define ND_IDENTIFY_ALPHA 1e-4         /* how often the true arithmetic is excluded, at most */
