/* Instructions on tiles (AMX) where the processor has none or the process may not use them: they trap, and are done here as
 * the manual says, so that compiled kernels run, some thousand times slower. For x86-64 with Linux. */
#ifndef TEST_TILE_TRAPS_H
#define TEST_TILE_TRAPS_H

#include <stdbool.h>

/* From now on, or until a test ends, as cmocka has handlers of its own; false where that is not possible: the kernels need
 * AVX-512, too. */
bool test_trap_tiles(void);

#endif
