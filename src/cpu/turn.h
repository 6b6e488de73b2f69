/* Turning a tile of elements around: what lies along one axis in memory comes to lie along the other. */
#ifndef HT_CPU_TURN_H
#define HT_CPU_TURN_H

#include <stddef.h>
#include <stdint.h>

/* to[r * to_step + c] = from[r * across + c * along] for r < rows, c < columns: distances in elements of 1, 2, 4 or 8 bytes.
 * Fast where `across` is 1 or -1. */
void ht_turn_tile(const char *from, int64_t across, int64_t along, char *to, int64_t to_step, int64_t rows,
                  int64_t columns, size_t bytes);

#endif
