/* Cancellation: a flag in the options of a long call, which ends the call with HT_ERR_CANCELLED.
 *
 * A flag belongs to a request, not to a session or a model: it may be set before its call, between two of its
 * calls, or during one. Several calls may share a flag. It must live until they have returned. */
#ifndef HEARTH_CANCEL_H
#define HEARTH_CANCEL_H

#include <hearth/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise (`ht_cancel flag = {0}`): not requested. Only the functions below access its field. */
typedef struct ht_cancel {
    int requested;
} ht_cancel;

/* Cancels every call that has the flag, later calls included. From any thread, and from a signal handler. A call
 * checks it at its next step: a chunk of the prompt, a token, some megabytes of weights, or while it waits for a
 * slot of the model. */
HT_API void ht_cancel_request(ht_cancel *c);
/* Whether cancellation is requested; false for NULL. */
HT_API bool ht_cancel_requested(const ht_cancel *c);
/* Clears the flag, for calls that begin later. */
HT_API void ht_cancel_reset(ht_cancel *c);

#ifdef __cplusplus
}
#endif
#endif
