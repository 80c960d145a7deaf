#include "npudiff/report/report.h"

#include <string.h>

#include "core/files/new_file.h"

enum nd_status nd_document_write(const char *path, const char *text, bool replace, struct nd_error *err)
{
    return nd_file_put_new(path, text, strlen(text), replace, err);
}

bool nd_document_is_stream(const char *path)
{
    return nd_path_is_stream(path);
}
