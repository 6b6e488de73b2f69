/* Models of the backends that --backend names, but for the native one, whose models are engine.h's. */
#ifndef HEARTH_APP_BACKENDS_H
#define HEARTH_APP_BACKENDS_H

#include "options.h"

#include <hearth/backend.h>

bool backend_is_native(const options *o);

/* Loads MODEL with the backend, as the options say; those that another backend cannot have are refused by name. The
 * interpreter of mlx_lm is --python, else what HEARTH_PYTHON says, else python3. The caller closes *out. */
ht_status backend_open(const options *o, ht_backend_model **out, ht_error *err);

#endif
