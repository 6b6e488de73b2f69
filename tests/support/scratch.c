#include "support/scratch.h"

#include "support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[512];

void scratch_make(void) {
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/hearth-test.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(directory)) fail_msg("no directory %s", directory);
}

const char *scratch_directory(void) { return directory; }

const char *scratch_path(const char *name) {
    static char paths[4][1024];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

void scratch_write(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(scratch_path(name), "wb");
    if (!f || (n && fwrite(bytes, 1, n, f) != n) || fclose(f) != 0) fail_msg("%s could not be written", name);
}

int scratch_count(void) {
    int n = 0;
    DIR *dir = opendir(directory);
    if (!dir) fail_msg("%s could not be read", directory);
    for (struct dirent *e; (e = readdir(dir));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static void remove_all(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        char inside[1024 + 256];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, e->d_name);
        if (unlink(inside) != 0) remove_all(inside);
    }
    closedir(dir);
    rmdir(path);
}

void scratch_remove(void) { remove_all(directory); }

int scratch_start(void **state) {
    (void)state;
    scratch_make();
    return 0;
}

int scratch_finish(void **state) {
    (void)state;
    scratch_remove();
    return 0;
}

char *scratch_read(const char *name, size_t *n) {
    enum { MOST = 1 << 20 };
    FILE *f = fopen(scratch_path(name), "rb");
    assert_non_null(f);
    char *bytes = malloc(MOST);
    assert_non_null(bytes);
    *n = fread(bytes, 1, MOST, f);
    assert_true(*n > 0 && *n < MOST);
    fclose(f);
    return bytes;
}
