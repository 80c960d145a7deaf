#include "cli/info_brief.h"

#include <stdio.h>

/* The attribute as text, "" when there is none. */
static const char *attribute(const json_t *info, const char *group, const char *key)
{
    const json_t *members = json_object_get(json_object_get(info, "attributes"), group);
    const char *text = json_string_value(json_object_get(members, key));
    return text != NULL ? text : "";
}

/* Prints the text after what separates it, unless it is empty. */
static void put(const char *before, const char *text, const char *after)
{
    if (text[0] != '\0')
        printf("%s%s%s", before, text, after);
}

static void print_device(const json_t *info)
{
    put("device    ", attribute(info, "device", "uri"), "");
    put(", ", attribute(info, "device", "marketing"), "");
    put(" (", attribute(info, "device", "arch"), ")");
    const json_t *device = json_object_get(json_object_get(info, "attributes"), "device");
    if (json_integer_value(json_object_get(device, "is_simulator")) == 1)
        printf(", simulated");
    printf("\n");
}

/* How many faults of an emulated device are written down, but not which: nobody shall see them by chance. */
static void print_truth(const json_t *info)
{
    const char *faulty = attribute(info, "truth", "faulty");
    size_t n = faulty[0] != '\0';
    if (json_object_get(json_object_get(info, "attributes"), "truth") == NULL)
        return;
    for (; *faulty != '\0'; faulty++)
        n += *faulty == '\n';
    printf("truth     emulated faults: %zu (--json says which)\n", n);
}

void info_print_brief(const json_t *info)
{
    const char *provider;
    json_t *count;
    printf("%s: %s\n", json_string_value(json_object_get(info, "path")),
           json_string_value(json_object_get(info, "status")));
    if (json_object_get(json_object_get(info, "attributes"), "failure") != NULL)
        printf("failure   %s: %s\n", attribute(info, "failure", "stage"),
               attribute(info, "failure", "message"));
    print_device(info);
    printf("model     %s, %" JSON_INTEGER_FORMAT " tensors recorded", attribute(info, "model", "file"),
           json_integer_value(
               json_object_get(info, json_object_get(info, "tensors") != NULL ? "tensors" : "edges")));
    printf("\nrun       ");
    put("runtime ", attribute(info, "runtime", "id"), "");
    put(", ONNX Runtime ", attribute(info, "runtime", "ort_version"), "");
    put(", provider ", attribute(info, "runtime", "provider_version"), "");
    printf("\n");
    put("captured  ", attribute(info, "capture", "created"), "");
    put(" by npudiff ", attribute(info, "capture", "npudiff_version"), "");
    put(" on ", attribute(info, "host", "machine"), "");
    printf("\nnodes     %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(info, "nodes")));
    json_object_foreach(json_object_get(info, "placement"), provider, count)
        printf(", %" JSON_INTEGER_FORMAT " on %s", json_integer_value(count), provider);
    printf("\n");
    print_truth(info);
    printf("          (-v shows all that the capture states)\n\n");
}
