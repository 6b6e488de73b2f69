/* Whether a core has to be asked for what it will read next. */
#ifndef HT_CPU_ASKING_H
#define HT_CPU_ASKING_H

#include <stdbool.h>

/* Whether operands that are read in order, with little arithmetic in between, are worth asking for ahead. Most cores look too
 * short a way ahead for that. AMD's Zen looks far enough, and what it is asked for takes the places of what it brings: max and
 * var of rows took 1.3 to 1.9 times as long with it. */
bool ht_asks_in_order(void);

#endif
