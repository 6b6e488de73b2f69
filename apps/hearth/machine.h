/* What the operating system says of the machine. */
#ifndef HEARTH_APP_MACHINE_H
#define HEARTH_APP_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct machine {
    char processor[128];       /* "" when the system does not say */
    int cores, online;         /* that this process may run on; that there are */
    size_t memory_bytes;       /* 0 when unknown */
    size_t l2_bytes, l3_bytes; /* of the first core; 0: none or unknown */
    char huge_pages[16];       /* "always", "madvise", "never", or "" */
} machine;

void machine_read(machine *m);

#endif
