/* What the user states of an imported run: facts that the files of the tool do not hold.
 * docs/reference/import-facts.md lists the keys.
 *
 * A fact comes from an option, from a --facts file, or from the top level of a --map. The same fact may come
 * from several places as long as all of them say the same. */
#ifndef ND_FOREIGN_STATEMENTS_H
#define ND_FOREIGN_STATEMENTS_H

#include "core/documents/yaml_map.h"

/* In the order of the table in statements.c. */
enum nd_stated_key {
    ND_STATED_KIND,
    ND_STATED_LABEL,
    ND_STATED_PHONE,
    ND_STATED_BOARD,
    ND_STATED_FIRMWARE,
    ND_STATED_SERIAL,
    ND_STATED_SIMULATOR,
    ND_STATED_CHIPSET,
    ND_STATED_RUNTIME,
    ND_STATED_RUNTIME_VERSION,
    ND_STATED_SDK,
    ND_STATED_PROVIDER,
    ND_STATED_OPTIMISATION,
    ND_STATED_THREADS,
    ND_STATED_MODEL_FILE,
    ND_STATED_MODEL_SHA256,
    ND_STATED_OPSET,
    ND_STATED_OUTPUTS,
    ND_STATED_MODEL_INPUTS,
    ND_STATED_SAMPLES,
    ND_STATED_LABELS,
    ND_STATED_FLOATS,
    ND_STATED_REPEATS,
    ND_STATED_REPEAT_ORDER,
    ND_STATED_REPEAT_FILES,
    ND_STATED_LATENCY_US,
    ND_STATED_LATENCY_MS,
    ND_STATED_LOGS,
    ND_STATED_FAILED,
    ND_STATED_FAILED_STAGE,
    ND_STATED_FAILED_OPERATOR,
    ND_STATED_FAILED_NODE,
    ND_STATED_FAILED_CODE,
    ND_STATED_FAILED_SYMBOL,
};
enum { ND_N_STATED = ND_STATED_FAILED_SYMBOL + 1 };

struct nd_statement {
    struct nd_texts values; /* n 0: not stated */
    char *where;            /* "--kind", "run.yaml:3:1" */
    char *folder;           /* paths are relative to it; "" for an option: the working folder */
};

struct nd_statements {
    struct nd_statement of[ND_N_STATED];
};

/* The name of a key, and the attribute that it becomes: *group is NULL where it is no attribute. */
const char *nd_stated_name(enum nd_stated_key key);

/* One value of a fact that an option states. Where the key takes a list, further calls from the same `where`
 * add to it. ND_E_IMPORT_FACT: an unknown key (names the nearest), a value that the key cannot have, or another
 * value than was stated elsewhere (names both). */
enum nd_status nd_statements_add(struct nd_statements *statements, const char *key, const char *value,
                                 const char *where, struct nd_error *err);

/* The facts of a YAML file; its `tensors` and `inputs` are those of a map, and are an error unless is_map. */
enum nd_status nd_statements_read(struct nd_statements *statements, const char *path, bool is_map,
                                  struct nd_error *err);

/* The first value, or NULL. */
const char *nd_stated(const struct nd_statements *statements, enum nd_stated_key key);

/* Path i of a fact that lists files. The caller frees it; NULL: out of memory. */
char *nd_stated_path(const struct nd_statements *statements, enum nd_stated_key key, size_t i);

/* "chipset is 'SM8650' by --chipset, but the file says 'SM8750'": `from` names the other side. */
enum nd_status nd_stated_conflict(const struct nd_statements *statements, enum nd_stated_key key,
                                  const char *other, const char *from, struct nd_error *err);

/* Facts that contradict one another, or need one another. */
enum nd_status nd_statements_check(const struct nd_statements *statements, struct nd_error *err);

#endif
