/* libnpudiff: all public headers, and the rules that hold in all of them. Start here.
 *
 * Each header stands in the folder of its wing (src/README.md).
 *
 * The library does what the command `npudiff` does. A program that works with captures needs three headers:
 *
 *     capture.h    reads captures (files with every tensor that a device computed)
 *     compare.h    compares them
 *     report.h     writes the comparison as text or JSON
 *
 * To make captures: model.h (ONNX models), probe.h (inputs), device.h (devices, and nd_capture_run). To
 * compute what a chip gives in this process: twin.h. To go further: explain.h (where a difference is made, and
 * whether it is a fault), placement.h, latency.h and config.h (what a capture says beside its tensors), judge.h
 * (accepted captures, campaigns), campaign.h (their tasks), reduce.h, prepare.h, import.h, encodings.h, logs.h.
 * All stand on status.h (errors), error_ids.h, tensor.h (types and shapes) and parse.h.
 *
 * Errors. A function that can fail returns `enum nd_status` and takes a `struct nd_error *` as its last
 * argument (status.h). The library never prints, and nothing in a file, of a device or of the system makes it
 * end the process: a full memory, a damaged or a shortened file and a dead agent are errors. Only a call that
 * breaks what a header demands (an index that is not below the count, NULL where a pointer is needed) does: it
 * stops in assert(), or is undefined where the library was built with NDEBUG.
 *
 * Processes and signals. Opening a capture or importing an HDF5 file forks a child that reads it confined
 * (SECURITY.md); running devices starts agents, adb and ssh. The library waits for its own children alone, by
 * their number. A program that ignores SIGCHLD can open captures, but not run devices. It installs no signal
 * handler, and sends SIGTERM and SIGKILL to its own children only. fork() runs the program's pthread_atfork
 * handlers, and the child has a copy of its memory, of which it can send to nobody but its parent. The child
 * ends with the thread that made it. A system that cannot confine is an error, unless NPUDIFF_CONFINE=off is in
 * the environment.
 *
 * Files. Captures, and what agents write, are read, not mapped: somebody who shortens one meanwhile causes an
 * error, never SIGBUS.
 *
 * Ownership. A `const` pointer that is passed in is borrowed for the call, unless its header says otherwise.
 * What
 * `_create`, `_open` or `_load` made is given back with `_destroy` or `_close`, which set the pointer to NULL
 * and accept a pointer to NULL. A struct that the caller provides is emptied with `_deinit`. A `char *` that is
 * written through a `char **` belongs to the caller, who calls free().
 *
 * Options. A struct with a member `struct_size` may grow in later versions. Fill it with its `_init` function,
 * or write `.struct_size = sizeof options`. NULL in its place means all defaults. Other languages call
 * `_init_sized` with the size of their struct. A program that was compiled against an older header works
 * with a newer library: members that the program does not know keep their defaults. A program that was
 * compiled against a newer header works with an older library while the members that the library does not know
 * are zero; else the function fails with ND_E_OPTION_NEWER. The same holds for nd_capture_verification, which a
 * function fills as far as its caller knows it. Every other struct keeps its size as long as its header is
 * stable: also nd_error, nd_shape, nd_quant, nd_digest, nd_tensor and nd_probe_values, which programs make.
 *
 * Stability. Each header says whether it is stable. What a stable header declares keeps its meaning, its size
 * and its symbol as long as the number in the library's soname (libnpudiff.so.0) stays. What an unstable header
 * declares may change in every minor version: its symbols carry that version (NPUDIFF_UNSTABLE_0.1), so that
 * the dynamic linker refuses a program that was compiled against another one.
 *
 * Threads. Functions may be called from several threads at once, on different objects. Each header says which
 * objects several threads may share.
 *
 * Example:
 *
 *     static int compare_files(const char *ref_path, const char *test_path)
 *     {
 *         struct nd_capture *ref = NULL, *test = NULL;
 *         struct nd_comparison *comparison = NULL;
 *         struct nd_error err;
 *         char *text = NULL;
 *         enum nd_status status = nd_capture_open(ref_path, &ref, &err);
 *         if (status == ND_OK)
 *             status = nd_capture_open(test_path, &test, &err);
 *         const struct nd_capture *const captures[] = {ref, test};
 *         if (status == ND_OK)
 *             status = nd_compare_captures(captures, 2, NULL, &comparison, &err);
 *         if (status == ND_OK)
 *             status = nd_report_text(comparison, NULL, &text, &err);
 *         if (status == ND_OK)
 *             fputs(text, stdout);
 *         else
 *             fprintf(stderr, "%s [ND-%d]\n", err.message, err.id);
 *         free(text);
 *         nd_comparison_destroy(&comparison);
 *         nd_capture_close(&test);
 *         nd_capture_close(&ref);
 *         return (int)nd_status_exit_code(status);
 *     }
 *
 * The same as a whole program, with how to build it: examples/compare.c.
 *
 * Stability: unstable, as it includes unstable headers. */
#ifndef NPUDIFF_NPUDIFF_H
#define NPUDIFF_NPUDIFF_H

#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/capture/logs.h"
#include "npudiff/compare/compare.h"
#include "npudiff/compare/config.h"
#include "npudiff/compare/latency.h"
#include "npudiff/compare/placement.h"
#include "npudiff/core/error_ids.h"
#include "npudiff/core/parse.h"
#include "npudiff/core/status.h"
#include "npudiff/core/tensor.h"
#include "npudiff/devices/device.h"
#include "npudiff/devices/twin.h"
#include "npudiff/explain/audit.h"
#include "npudiff/explain/explain.h"
#include "npudiff/improve/align.h"
#include "npudiff/improve/certificate.h"
#include "npudiff/improve/promote.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/improve/sweep.h"
#include "npudiff/judge/campaign.h"
#include "npudiff/judge/judge.h"
#include "npudiff/judge/twin_check.h"
#include "npudiff/model/encodings.h"
#include "npudiff/model/model.h"
#include "npudiff/record/import.h"
#include "npudiff/record/prepare.h"
#include "npudiff/record/probe.h"
#include "npudiff/report/report.h"

#endif
