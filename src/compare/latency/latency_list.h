/* A list of latencies while it is read (latency_read.c): text, CSV, NumPy, JSON. */
#ifndef ND_LATENCY_LATENCY_LIST_H
#define ND_LATENCY_LATENCY_LIST_H

#include "core/error.h"
#include "npudiff/compare/latency.h"

struct nd_list {
    const char *path;
    const char *column; /* or NULL */
    double unit_us;
    double *us;
    size_t n, capacity;
    const char *format;
    struct nd_latency_list profile; /* what a profile says beside its times */
};

#endif
