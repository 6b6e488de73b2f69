/* For targets of what opens files by name: a directory of its own in memory, and the files that an input describes. */
#ifndef TESTS_FUZZ_FILES_H
#define TESTS_FUZZ_FILES_H

#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 16, FILES_DATA_MAX = 1 << 16 };

static char files_directory[64];
static char files_made[2 * FILES_MAX][256];
static int n_files_made;

/* What was made last is removed first: files go before the directories that hold them. */
static inline void files_clear(void) {
    while (n_files_made) {
        const char *path = files_made[--n_files_made];
        if (unlink(path) != 0) rmdir(path);
    }
}

static inline void files_end(void) {
    files_clear();
    rmdir(files_directory);
}

static inline const char *files_begin(void) {
    if (!*files_directory) {
        snprintf(files_directory, sizeof files_directory, "%s/hearth-fuzz.XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(files_directory)) abort();
        atexit(files_end);
    }
    files_clear();
    return files_directory;
}

/* The last of up to three levels; whatever else an input calls a file, it stays in the directory. */
static inline int files_open(const char *name, size_t n) {
    char path[256];
    int at = snprintf(path, sizeof path, "%s", files_directory), levels = 0;
    for (size_t i = 0; i <= n; i++) {
        size_t from = i;
        while (i < n && name[i] != '/' && name[i]) i++;
        if (i == from || i - from > 60 || !strncmp(name + from, ".", i - from) || !strncmp(name + from, "..", i - from))
            continue;
        if (++levels > 3 || n_files_made + 1 >= 2 * FILES_MAX) return -1;
        if (levels > 1 && mkdir(path, 0700) == 0) strcpy(files_made[n_files_made++], path);
        at += snprintf(path + at, sizeof path - (size_t)at, "/%.*s", (int)(i - from), name + from);
    }
    int fd = levels ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd >= 0) strcpy(files_made[n_files_made++], path);
    return fd;
}

static inline void files_put(int fd, const void *data, size_t n) {
    if (write(fd, data, n) != (ssize_t)n) abort();
}

static inline void files_write(const char *name, const uint8_t *data, size_t n) {
    int fd = files_open(name, strlen(name));
    if (fd < 0) return;
    files_put(fd, data, n);
    close(fd);
}

/* Where the data of a safetensors header ends, as far as its text tells. */
static inline size_t files_end_of_data(const char *header, size_t n) {
    static const char key[] = "\"data_offsets\":[";
    size_t end = 0;
    for (size_t i = 0; i + sizeof key < n; i++) {
        if (memcmp(header + i, key, sizeof key - 1) != 0) continue;
        size_t at = i + sizeof key - 1, value = 0;
        while (at < n && header[at] != ',' && header[at] != ']') at++;
        for (at++; at < n && header[at] >= '0' && header[at] <= '9' && value < FILES_DATA_MAX; at++)
            value = 10 * value + (size_t)(header[at] - '0');
        if (value <= FILES_DATA_MAX && value > end) end = value;
    }
    return end;
}

/* A safetensors file of which the input is the header alone: its length and as much data as it speaks of are put around it. */
static inline void files_put_safetensors(int fd, const uint8_t *header, size_t n) {
    static uint8_t data[FILES_DATA_MAX];
    if (!data[1])
        for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 37 % 97 + 16);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)n >> 8 * i);
    files_put(fd, length, sizeof length);
    files_put(fd, header, n);
    files_put(fd, data, files_end_of_data((const char *)header, n));
}

static inline void files_write_safetensors(const char *name, const uint8_t *header, size_t n) {
    int fd = files_open(name, strlen(name));
    if (fd < 0) return;
    files_put_safetensors(fd, header, n);
    close(fd);
}

/* Up to a NUL, which is skipped; the rest when there is none. */
static inline const uint8_t *files_part(const uint8_t **data, size_t *size, size_t *n) {
    const uint8_t *part = *data, *end = memchr(part, 0, *size);
    *n = end ? (size_t)(end - part) : *size;
    *data += *n + (end != NULL);
    *size -= *n + (end != NULL);
    return part;
}

#endif
