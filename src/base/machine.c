/* Machine facts from the operating system: Linux's /proc and /sys. */
#include "base/system.h"

#include <hearth/memory.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static bool read_line(const char *path, char *line, size_t size) {
    FILE *f = fopen(path, "re");
    bool good = f && fgets(line, (int)size, f);
    if (f) fclose(f);
    if (good) line[strcspn(line, "\n")] = '\0';
    return good;
}

/* The value of the first line `key : value` in /proc/cpuinfo. */
static bool cpu_info(const char *key, char *value, size_t size) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(value, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
        found = true;
    }
    if (f) fclose(f);
    return found;
}

static void read_caches(ht_machine *m) {
    for (int i = 0; i < 8; i++) {
        char path[96], level[16], size[32], type[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!read_line(path, level, sizeof level)) return;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!read_line(path, size, sizeof size)) return;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!read_line(path, type, sizeof type)) return;
        size_t bytes = strtoull(size, NULL, 10) << (strchr(size, 'M') ? 20 : 10); /* "2048K" */
        if (level[0] == '1' && type[0] == 'D') m->l1_bytes = bytes;
        if (level[0] == '2') m->l2_bytes = bytes;
        if (level[0] == '3') m->l3_bytes = bytes;
    }
}

/* Reads the mode in brackets from a line like "always [madvise] never". */
static void read_huge_pages(ht_machine *m) {
    char line[64];
    if (!read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) return;
    char *begin = strchr(line, '['), *end = begin ? strchr(begin, ']') : NULL;
    if (end) snprintf(m->huge_pages, sizeof m->huge_pages, "%.*s", (int)(end - begin - 1), begin + 1);
}

void ht_machine_read(ht_machine *m) {
    *m = (ht_machine){0};
    /* On ARM /proc/cpuinfo has part numbers only; the device tree may have a name. */
    if (!cpu_info("model name", m->processor, sizeof m->processor) &&
        !read_line("/sys/firmware/devicetree/base/model", m->processor, sizeof m->processor))
        m->processor[0] = '\0';
    struct utsname system;
    if (uname(&system) == 0) snprintf(m->architecture, sizeof m->architecture, "%.31s", system.machine);
    long online = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    m->online = online > 0 ? (int)online : 1;
    m->cores = ht_system_cores();
    if (pages > 0 && page > 0) m->memory_bytes = (size_t)pages * (size_t)page;
    read_caches(m);
    read_huge_pages(m);
}
