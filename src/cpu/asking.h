/* Whether a core has to be asked for what it will read next. */
#ifndef HT_CPU_ASKING_H
#define HT_CPU_ASKING_H

#include <stdbool.h>

/* Whether what will be read next is worth asking for into the first cache. Most cores look too short a way ahead by
 * themselves. AMD's Zen looks far enough along a row, and what it is asked for takes the places of what it brings: max and var
 * of rows took 1.3 to 1.9 times as long with it. Rows that are read beside each other are asked for there, too, but into the
 * second cache: sums of columns took 0.6 of the time of either. So are rows of sums of powers with AVX2, between whose loads
 * stands much arithmetic: 0.8 of the time (LOOKS_FAR in powers_sum.c). */
bool ht_asks_near(void);

#endif
