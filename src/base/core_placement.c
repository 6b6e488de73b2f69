#include "base/core_placement.h"

#include <stdlib.h>

#if defined(__linux__)

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ht_core_placement {
    pid_t process, thread; /* after fork() the records describe the parent's threads: `process` reveals that */
    size_t core;           /* core on which the thread fell asleep */
    bool sleeps, sent;
    cpu_set_t before; /* affinity mask to be restored */
};

int ht_core_now(void) { return sched_getcpu(); }

void ht_core_placement_sleep(ht_core_placement *b) {
    b->process = getpid();
    b->thread = (pid_t)syscall(SYS_gettid);
    b->core = (size_t)ht_core_now();
    b->sleeps = true;
    b->sent = false;
}

bool ht_core_placement_woken(ht_core_placement *b) {
    b->sleeps = false;
    if (b->sent) (void)sched_setaffinity(0, sizeof b->before, &b->before);
    return b->sent;
}

static bool known(size_t core) { return core < CPU_SETSIZE; }

static void send(ht_core_placement *b, const cpu_set_t *to) {
    if (CPU_COUNT(to) > 0) b->sent = sched_setaffinity(b->thread, sizeof *to, to) == 0;
}

/* Moves a thread to a free core: with `several` sleepers to one single core, which is added to `taken`, else to any of
 * them. Without free cores the mask excludes only `core`. */
static void send_anywhere(ht_core_placement *b, size_t core, bool several, cpu_set_t *taken) {
    cpu_set_t to, free;
    CPU_AND(&free, &b->before, taken);
    CPU_XOR(&free, &free, &b->before);
    to = b->before;
    CPU_CLR(core, &to);
    if (!several && CPU_COUNT(&free) > 0) to = free;
    for (size_t c = 0; several && c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &free)) continue;
        CPU_SET(c, taken);
        CPU_ZERO(&to);
        CPU_SET(c, &to);
        break;
    }
    send(b, &to);
}

/* Restricts a thread to the core on which it fell asleep and the free cores. */
static void send_home(ht_core_placement *b, const cpu_set_t *taken) {
    cpu_set_t to;
    CPU_AND(&to, &b->before, taken);
    CPU_XOR(&to, &to, &b->before);
    if (CPU_ISSET(b->core, &b->before)) CPU_SET(b->core, &to);
    send(b, &to);
}

void ht_core_placements_send(ht_core_placement *placements, int n, int from) {
    const size_t core = (size_t)from;
    if (!known(core)) return;
    int first[CPU_SETSIZE] = {0}; /* 1 + index of the first sleeper of each core; 0: none */
    cpu_set_t taken;
    CPU_ZERO(&taken);
    CPU_SET(core, &taken);
    for (int i = 0; i < n; i++) {
        ht_core_placement *b = &placements[i];
        if (!b->sleeps || b->sent) continue;
        b->sleeps = b->process == getpid() && sched_getaffinity(b->thread, sizeof b->before, &b->before) == 0;
        if (!b->sleeps) continue;
        if (!known(b->core)) b->core = core;
        CPU_SET(b->core, &taken);
        if (!first[b->core]) first[b->core] = 1 + i;
    }
    for (int at_home = 0; at_home < 2; at_home++)
        for (int i = 0; i < n; i++) {
            ht_core_placement *b = &placements[i];
            if (!b->sleeps || b->sent || (b->core != core && first[b->core] == 1 + i) != at_home) continue;
            if (at_home)
                send_home(b, &taken);
            else
                send_anywhere(b, core, n > 1, &taken);
        }
}

#else

struct ht_core_placement {
    int none;
};

int ht_core_now(void) { return -1; }
void ht_core_placement_sleep(ht_core_placement *b) { (void)b; }
bool ht_core_placement_woken(ht_core_placement *b) {
    (void)b;
    return false;
}
void ht_core_placements_send(ht_core_placement *b, int n, int core) { (void)b, (void)n, (void)core; }

#endif

ht_core_placement *ht_core_placements_new(int n) { return calloc((size_t)n, sizeof(ht_core_placement)); }
ht_core_placement *ht_core_placement_at(ht_core_placement *placements, int i) { return placements + i; }
