#include "written.h"

#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void written_path(const char *out, const ht_convert_report *r, char path[WRITTEN_PATH_SIZE]) {
    static const char end[] = ".gguf";
    const size_t n = strlen(out), m = sizeof end - 1;
    struct stat st;
    const bool named = n >= m && !strcmp(out + n - m, end) && !(stat(out, &st) == 0 && S_ISDIR(st.st_mode));
    if (named && r->n_files > 1)
        snprintf(path, WRITTEN_PATH_SIZE, "%.*s-00001-of-%05lld%s", (int)(n - m), out, (long long)r->n_files, end);
    else
        snprintf(path, WRITTEN_PATH_SIZE, "%s", out);
}

void written_print(const char *out, const ht_convert_report *r) {
    char path[WRITTEN_PATH_SIZE];
    written_path(out, r, path);
    output_field("out", "%s", path);
    if (r->n_files > 1) output_field("files", "%lld", (long long)r->n_files);
    output_field("bytes", "%lld", (long long)r->bytes);
}
