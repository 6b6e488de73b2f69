#define _GNU_SOURCE
#include "support/tile_traps.h"

#if defined(__x86_64__) && defined(__linux__)

#define HT_ISA trapped
#include "cpu/isa.h"
#include "cpu/vector/bf16_tiles.h"

#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

static _Thread_local tiles state;
static _Thread_local bool configured;

typedef struct decoded {
    uint8_t opcode, prefix, reg, rm, second; /* prefix: 0, 0x66, 0xf3, 0xf2 as 0 to 3 */
    char *address;                           /* if it is an operand in memory */
    int64_t step;                            /* its index */
    int length;
} decoded;

static int64_t of_register(const ucontext_t *u, int number) {
    static const int at[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return u->uc_mcontext.gregs[at[number]];
}

/* An instruction of three-byte VEX of the map 0F38; its length is 0 if it is another. */
static decoded decode(const uint8_t *p, const ucontext_t *u) {
    enum { NO_BASE = -1 };
    decoded d = {0};
    if (p[0] != 0xc4 || (p[1] & 0x1f) != 2) return d;
    const int x = p[1] & 0x40 ? 0 : 8, b = p[1] & 0x20 ? 0 : 8, mode = p[4] >> 6;
    d = (decoded){.opcode = p[3], .prefix = p[2] & 3, .reg = p[4] >> 3 & 7, .rm = p[4] & 7, .length = 5};
    d.second = (uint8_t)(~p[2] >> 3 & 15);
    if (mode == 3) return d;
    if (mode == 0 && d.rm == 5) abort(); /* relative to the instruction: not asked for */
    int base = d.rm + b;
    if (d.rm == 4) {
        const uint8_t sib = p[d.length++];
        const int index = (sib >> 3 & 7) + x;
        base = mode == 0 && (sib & 7) == 5 ? NO_BASE : (sib & 7) + b;
        if (index != 4) d.step = of_register(u, index) * (1 << (sib >> 6));
    }
    int32_t far = 0;
    if (mode == 1) far = (int8_t)p[d.length];
    const bool wide = mode == 2 || base == NO_BASE;
    if (wide) memcpy(&far, p + d.length, sizeof far);
    d.length += wide ? 4 : mode;
    d.address = (char *)((base == NO_BASE ? 0 : of_register(u, base)) + far);
    return d;
}

/* What the processor refuses ends the test, too. */
static void demand(bool right) {
    if (!right) abort();
}

static void configure(const uint8_t *from) {
    demand(from[0] == 1);
    for (int i = 1; i < 16; i++) demand(from[i] == 0);
    for (int t = 0; t < 16; t++) {
        const int rows = from[48 + t], row_bytes = from[16 + 2 * t] | from[17 + 2 * t] << 8;
        demand(row_bytes == (rows ? TILE_BYTES : 0)); /* other widths are not asked for */
        demand(rows <= (t < 8 ? TILE_ROWS : 0));
        if (t < 8) state.rows[t] = rows;
    }
    memset(state.row, 0, sizeof state.row);
    configured = true;
}

static bool run(const decoded *d) {
    enum { LOAD_STORE = 0x4b, CONFIGURE_ZERO = 0x49, DOT_BF16 = 0x5c };
    if (d->opcode == CONFIGURE_ZERO && d->prefix == 0) {
        configured = false;
        if (d->address) configure((const uint8_t *)d->address);
        return true;
    }
    if (d->length == 0) return false;
    demand(configured && state.rows[d->reg] > 0);
    if (d->opcode == CONFIGURE_ZERO && d->prefix == 3)
        TILE_ZERO(&state, d->reg);
    else if (d->opcode == LOAD_STORE && (d->prefix == 3 || d->prefix == 1))
        TILE_LOAD(&state, d->reg, d->address, d->step);
    else if (d->opcode == LOAD_STORE && d->prefix == 2)
        TILE_STORE(&state, d->reg, d->address, d->step);
    else if (d->opcode == DOT_BF16 && d->prefix == 2 && !d->address) {
        demand(d->reg != d->rm && d->rm != d->second && d->reg != d->second && d->second < 8);
        demand(state.rows[d->reg] == state.rows[d->rm] && state.rows[d->second] == TILE_ROWS);
        TILE_DOT(&state, d->reg, d->rm, d->second);
    } else
        return false;
    return true;
}

static void trapped(int signal_number, siginfo_t *info, void *context) {
    (void)info;
    ucontext_t *u = context;
    const decoded d = decode((const uint8_t *)u->uc_mcontext.gregs[REG_RIP], u);
    if (d.length > 0 && run(&d))
        u->uc_mcontext.gregs[REG_RIP] += d.length;
    else
        signal(signal_number, SIG_DFL); /* and it traps again */
}

bool test_trap_tiles(void) {
    enum { AMX_TILE = 1 << 24 };
    uint32_t b, c, d, has;
    /* Where the processor has tiles that the system keeps from us, some of the instructions do not trap. */
    if (!__get_cpuid_count(7, 0, &b, &c, &d, &has) || has & AMX_TILE) return false;
    if (!ht_cpu_isa_available(HT_CPU_AVX512)) return false;
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    return sigaction(SIGILL, &action, NULL) == 0;
}

#else
bool test_trap_tiles(void) { return false; }
#endif
