/* Limits of a YAML document, so that one that was made to cost much costs nothing. */
#ifndef ND_BASE_YAML_LIMITS_H
#define ND_BASE_YAML_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

/* What is wrong, and where. */
struct nd_yaml_excess {
    const char *problem; /* NULL: nothing; static text */
    yaml_mark_t mark;
};

/* Before the text is parsed: how deep lists and mappings lie in each other, how many anchors and tag directives
 * there are. What is no YAML is left to the parser. False when out of memory. */
bool nd_yaml_check_text(const char *text, size_t n_bytes, struct nd_yaml_excess *excess);

/* After it: the same depth through aliases, and how many values the aliases stand for. */
void nd_yaml_check_aliases(yaml_document_t *document, struct nd_yaml_excess *excess);

#endif
