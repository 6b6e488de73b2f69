/* Options of an optimiser as it was made, behind <hearth/optimizer.h>. */
#ifndef HT_TRAIN_OPTIMIZER_H
#define HT_TRAIN_OPTIMIZER_H

#include <hearth/optimizer.h>

/* With the defaults filled in, as checkpoints hold them. Lent as long as the optimiser lives. */
const ht_optimizer_options *ht_optimizer_get_options(const ht_optimizer *o);

#endif
