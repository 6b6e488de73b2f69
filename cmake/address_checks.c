/* Checks of the vector kernels' accesses in builds with the address sanitizer (CMakeLists.txt): the linker puts them in the place of
 * the runtime's, whose loop over the shadow of each vector takes most of a kernel's time. One look tells that all bytes of a
 * vector may be accessed; the runtime decides about all others, and reports. Compiled without sanitizers. */
#include <sanitizer/asan_interface.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static size_t scale, offset;

__attribute__((constructor)) static void find_shadow(void) { __asan_get_shadow_mapping(&scale, &offset); }

/* Of up to 64 bytes: whether the shadow of all of them is 0. One byte of shadow stands for eight. */
static inline bool is_accessible(uintptr_t address, size_t n) {
    const unsigned char *shadow = (const unsigned char *)((address >> 3) + offset);
    const size_t last = ((address & 7) + n - 1) >> 3;
    uint64_t first;
    memcpy(&first, shadow, sizeof first);
    return scale == 3 && (last < 8 ? first << (56 - 8 * last) == 0 : last == 8 && !(first | shadow[8]));
}

void __real___asan_loadN(uintptr_t address, size_t n);
void __real___asan_storeN(uintptr_t address, size_t n);
void __wrap___asan_loadN(uintptr_t address, size_t n);
void __wrap___asan_storeN(uintptr_t address, size_t n);

void __wrap___asan_loadN(uintptr_t address, size_t n) {
    if (!is_accessible(address, n)) __real___asan_loadN(address, n);
}

void __wrap___asan_storeN(uintptr_t address, size_t n) {
    if (!is_accessible(address, n)) __real___asan_storeN(address, n);
}
