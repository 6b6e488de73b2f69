#include "support/scratch.h"

#include "base/file.h"
#include "support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[512];

void scratch_make(void) {
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/hearth-test.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(directory)) fail_msg("no directory %s", directory);
}

const char *scratch_directory(void) { return directory; }

const char *scratch_path(const char *name) {
    enum { VALID = 64 };
    static char paths[VALID][1024];
    static unsigned turn;
    char *path = paths[turn++ % VALID];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

const char *scratch_path_apart(const char *name) {
    static int folders;
    char inner[300];
    snprintf(inner, sizeof inner, "%d", folders++);
    assert_int_equal(mkdir(scratch_path(inner), 0777), 0);
    snprintf(inner + strlen(inner), sizeof inner - strlen(inner), "/%s", name);
    return scratch_path(inner);
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

char *file_bytes(const char *path, size_t *n) {
    char *bytes;
    ht_error err = {0};
    if (ht_file_read_all(path, 1 << 26, &bytes, n, &err)) fail_msg("%s", err.message);
    return bytes;
}

char *scratch_read(const char *name, size_t *n) {
    char *bytes = file_bytes(scratch_path(name), n);
    assert_true(*n > 0);
    return bytes;
}
