/* How a core finds what it will read next, and what is worth asking for. */
#ifndef HT_CPU_ASKING_H
#define HT_CPU_ASKING_H

#include <stdbool.h>

typedef enum ht_core_kind {
    HT_CORE_ASKS,   /* looks a short way ahead: it has to be asked */
    HT_CORE_LOOKS,  /* far along a row: AMD's Zen, before Zen 5 */
    HT_CORE_FOLLOWS /* and along sixteen rows beside each other, as long as pages of each are read: since then */
} ht_core_kind;

/* What cores are taken for from now on, for tests: no result depends on it. Gives what they were taken for. Not between asking
 * for scratch memory and running: how much is needed depends on it. */
ht_core_kind ht_core_take_for(ht_core_kind kind);

/* Whether what will be read next is worth asking for into the first cache. Most cores look too short a way ahead by
 * themselves. AMD's Zen looks far enough along a row, and what it is asked for takes the places of what it brings: max and var
 * of rows took 1.3 to 1.9 times as long with it. Rows that are read beside each other are asked for there, too, but into the
 * second cache: sums of columns took 0.6 of the time of either. So are rows of sums of powers with AVX2, between whose loads
 * stands much arithmetic: 0.8 of the time. */
bool ht_asks_near(void);

/* Whether a core follows rows that are read beside each other by itself. Sums of columns, which have little arithmetic, took
 * 0.8 of the time on Zen 5 with sixteen rows and without asking. */
bool ht_follows_rows(void);

#endif
