/* State files: a session saved to a file and restored, so that nothing it holds is computed again.
 *
 * A file holds the session's tokens, the keys and values of its KV cache and the states of recurrent layers, also those
 * that the session can go back to. It records how they were computed: the model's fingerprint and its tokenizer's,
 * precision, type and shape of the cache, adapters and their scales. A session that differs in any of them rejects it.
 * Random numbers are drawn by seed and position, so a restored session continues as the saved one would have, to the
 * bit, sampled or not; on another instruction set equal bits are not promised. */
#ifndef HEARTH_STATE_H
#define HEARTH_STATE_H

#include <hearth/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Saves what the session holds to a file, written in the same directory, flushed and renamed: a crash leaves the old
 * file or the new one. Only its owner may read a new file; a replaced file keeps its permissions. */
HT_API ht_status ht_session_save(const ht_session *s, const char *path, ht_error *err);

/* Replaces the session's contents with those of a file. HT_ERR_ARGUMENT with the difference when
 * another model, adapter or kind of cache made it, HT_ERR_FORMAT when it is damaged, HT_ERR_UNSUPPORTED when a newer
 * version wrote it, HT_ERR_LIMIT if it is longer than the session's context. A failure does not change the session. */
HT_API ht_status ht_session_load(ht_session *s, const char *path, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
