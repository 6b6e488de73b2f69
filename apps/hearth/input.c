#include "input.h"

#include "base/grow.h"
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ht_status out_of_memory(ht_error *err) {
    return ht_fail(err, HT_ERR_MEMORY, "out of memory while reading the input");
}

static ht_status read_to_end(int fd, const char *what, char **text, size_t *n, ht_error *err) {
    size_t capacity = 0, used = 0;
    char *bytes = NULL;
    while (HT_GROW(bytes, capacity, used + 4096)) {
        ssize_t got = read(fd, bytes + used, capacity - used - 1);
        if (got > 0)
            used += (size_t)got;
        else if (got == 0) {
            bytes[used] = '\0';
            *text = bytes;
            *n = used;
            return HT_OK;
        } else if (errno != EINTR) {
            free(bytes);
            return fail_system(err, what, "read");
        }
    }
    free(bytes);
    return out_of_memory(err);
}

ht_status input_read_all(const char *what, char **text, size_t *n, ht_error *err) {
    *text = NULL;
    *n = 0;
    if (isatty(STDIN_FILENO) == 1) fprintf(stderr, "hearth: waiting for %s on standard input; Ctrl-D ends it\n", what);
    return read_to_end(STDIN_FILENO, "standard input", text, n, err);
}

ht_status input_read_file(const char *path, char **text, size_t *n, ht_error *err) {
    static const char mark[] = "\xEF\xBB\xBF";
    ht_status st;
    *text = NULL;
    *n = 0;
    if (strcmp(path, "-") == 0) {
        st = input_read_all("the text", text, n, err);
    } else {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return fail_system(err, path, "read");
        st = read_to_end(fd, path, text, n, err);
        close(fd);
    }
    if (st || strncmp(*text, mark, strlen(mark)) != 0) return st;
    *n -= strlen(mark);
    memmove(*text, *text + strlen(mark), *n + 1);
    return HT_OK;
}

char *expand_home(const char *path) {
    if (*path != '~') return strdup(path);
    const size_t n = strcspn(path + 1, "/");
    char *name = strndup(path + 1, n), *expanded;
    if (!name) return NULL;
    const char *home = *name ? NULL : getenv("HOME");
    const struct passwd *user = home ? NULL : *name ? getpwnam(name) : getpwuid(getuid());
    free(name);
    if (!home && user) home = user->pw_dir;
    if (!home) return strdup(path);
    return asprintf(&expanded, "%s%s", home, path + 1 + n) < 0 ? NULL : expanded;
}

ht_status ids_parse(const char *text, id_list *list, ht_error *err) {
    static const char separators[] = ", \t\r\n", *blanks = separators + 1;
    bool comma = false; /* directly before `at`: an id must follow */
    for (const char *at = text;;) {
        at += strspn(at, blanks);
        if (!*at && !comma) return HT_OK;
        size_t n = strcspn(at, separators);
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (!n || end != at + n || errno || id < 0 || id > INT32_MAX)
            return ht_fail(err, HT_ERR_ARGUMENT, "\"%.*s\" is no token id: expected numbers such as 1,2,3",
                           n < 60 ? (int)n : 60, at);
        if (!HT_GROW_ONE(list->ids, list->n)) return out_of_memory(err);
        list->ids[list->n++] = (int32_t)id;
        at += n;
        at += strspn(at, blanks);
        comma = *at == ',';
        at += comma;
    }
}

ht_status ids_read(const char *given, id_list *list, ht_error *err) {
    if (strcmp(given, "-") != 0) return ids_parse(given, list, err);
    char *text;
    size_t n;
    ht_status st = input_read_all("token ids", &text, &n, err);
    if (!st) st = ids_parse(text, list, err);
    free(text);
    return st;
}

ht_status text_source_read(const char *text, const char *ids, text_source *out, ht_error *err) {
    *out = (text_source){0};
    if (text) return input_read_file(text, &out->text, &out->n, err);
    return ids ? ids_read(ids, &out->list, err) : HT_OK;
}

void text_source_free(text_source *s) {
    free(s->text);
    free(s->list.ids);
}
