/* Candidates for the completion of shells. */
#include "cli/options/help.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/terminal/output.h"
#include "npudiff/capture/capture.h"
#include "npudiff/devices/device.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

static void print_candidate(const char *word, const char *meaning)
{
    printf("%s\t%s\n", word, meaning);
}

static const char *name_of(const struct nd_chipset *chipset)
{
    return chipset->alias[0] != '\0' ? chipset->alias : chipset->sm;
}

static void complete_chipsets(const char *prefix)
{
    size_t n;
    const struct nd_chipset *chipsets = nd_chipsets(&n);
    for (size_t i = 0; i < n; i++)
        printf("%s%s\t%s, %s\n", prefix, name_of(&chipsets[i]), chipsets[i].marketing, chipsets[i].arch);
}

/* Phones are left out: asking adb would start its server. */
static void complete_devices(void)
{
    print_candidate("cpu", "ONNX Runtime on the CPU");
    print_candidate("exact", "the quantised model, evaluated exactly");
    print_candidate("float64", "the float model in double precision");
    complete_chipsets("htp-sim:");
    print_candidate("emu:htp-v73", "emulated arithmetic, or faults");
    print_candidate("adb:*", "every attached phone");
    print_candidate("ssh:", "a board: ssh:HOST");
    print_candidate("htp", "the NPU of this computer");
}

static void complete_runtimes(void)
{
    struct nd_runtime_list list;
    if (nd_runtimes_list(&list, NULL) != ND_OK)
        return;
    for (size_t i = 0; i < list.n; i++)
        if (list.items[i].missing == NULL && (i == 0 || strcmp(list.items[i].id, list.items[i - 1].id) != 0))
            print_candidate(list.items[i].id, "installed");
    nd_runtimes_deinit(&list);
}

static void complete_probes(void)
{
    for (const struct nd_probe_kind *kind = nd_probe_kinds(); kind->name != NULL; kind++)
        print_candidate(kind->name, kind->summary);
}

static bool complete_capture(const char *path, bool wants_probes)
{
    struct nd_capture *capture = NULL;
    if (!cli_is_hdf5(path) || nd_capture_open(path, &capture, NULL) != ND_OK)
        return false;
    for (size_t i = 0; wants_probes && i < nd_capture_n_probes(capture); i++)
        print_candidate(nd_capture_probe(capture, i)->name, "probe");
    for (size_t i = 0; !wants_probes && i < nd_capture_n_tensors(capture); i++)
        print_candidate(nd_capture_tensor(capture, i)->name, nd_capture_tensor(capture, i)->op_types);
    nd_capture_close(&capture);
    return true;
}

static bool complete_model(const char *path)
{
    struct nd_model *model = NULL;
    if (!cli_ends_with(path, ".onnx") || nd_model_load(path, &model, NULL) != ND_OK)
        return false;
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        print_candidate(nd_model_tensor(model, i)->name, nd_model_tensor(model, i)->op_types);
    nd_model_destroy(&model);
    return true;
}

int cli_complete(const char *kind, const char *const *files, size_t n_files)
{
    bool is_done = false, wants_probes = strcmp(kind, "probe-name") == 0;
    if (strcmp(kind, "device") == 0)
        complete_devices();
    else if (strcmp(kind, "chipset") == 0)
        complete_chipsets("");
    else if (strcmp(kind, "runtime") == 0)
        complete_runtimes();
    else if (strcmp(kind, "probe") == 0)
        complete_probes();
    else if (wants_probes || strcmp(kind, "tensor") == 0 || strcmp(kind, "tensors") == 0)
        for (size_t i = 0; !is_done && i < n_files; i++)
            is_done = complete_capture(files[i], wants_probes) || (!wants_probes && complete_model(files[i]));
    return 0;
}
