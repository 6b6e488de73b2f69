/* Forecast of a trainer's memory, and the choice of checkpointing by it. */
#ifndef HT_TRAIN_FORECAST_H
#define HT_TRAIN_FORECAST_H

#include "train/trainer.h"

/* Fills in t->checkpointing and t->peak_bytes. HT_ERR_LIMIT, with the option that would help, when free memory does not
 * suffice. */
ht_status ht_forecast_check(ht_trainer *t, ht_error *err);

#endif
