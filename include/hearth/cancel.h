/* Cancellation: a flag given with the options of a long call, which ends the call with HT_ERR_CANCELLED.
 *
 * A flag belongs to a request, not to a session or a model: it may be set before the call that it is meant for,
 * between two calls that it is given to, or during one. Several calls may share a flag. It has to live until they
 * have returned. */
#ifndef HEARTH_CANCEL_H
#define HEARTH_CANCEL_H

#include <hearth/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise (`ht_cancel flag = {0}`): nothing is requested. Its field is read and written by the functions below
 * alone. */
typedef struct ht_cancel {
    int requested;
} ht_cancel;

/* Requests the end of every call that has the flag, those to come included. From any thread, and from a signal
 * handler. A call sees it at its next step: a chunk of the prompt, a token, some megabytes of weights, or while it
 * waits for a slot of the model. */
HT_API void ht_cancel_request(ht_cancel *c);
/* Whether the end is requested; false for NULL. */
HT_API bool ht_cancel_requested(const ht_cancel *c);
/* Clears the flag, for calls that begin later. */
HT_API void ht_cancel_reset(ht_cancel *c);

#ifdef __cplusplus
}
#endif
#endif
