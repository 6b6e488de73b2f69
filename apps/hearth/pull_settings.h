/* Settings of `hearth pull`: the hub's address and token, from the environment as Hugging Face's own tools read it, and the options that say
 * how patient a transfer is. */
#ifndef HEARTH_APP_PULL_SETTINGS_H
#define HEARTH_APP_PULL_SETTINGS_H

#include "options.h"

#include <stdatomic.h>

typedef struct pull_settings {
    char *endpoint; /* HF_ENDPOINT, else https://huggingface.co; without a slash at its end */
    char *token; /* HF_TOKEN, else the file of HF_TOKEN_PATH, HF_HOME/token or ~/.cache/huggingface/token; NULL: none */
    const char *
        certificates; /* file of those that are trusted: CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE or SSL_CERT_FILE; NULL: the system's */
    int64_t retries;    /* failures in a row, without a byte in between, after which a transfer is given up, less one */
    double retry_delay; /* seconds before the first repetition; doubled for each further one */
    double timeout; /* seconds without an answer, or nearly without bytes, after which a connection counts as failed */
    int64_t connections; /* files to fetch at once */
    bool quiet;
    const atomic_bool
        *stop; /* set when another transfer has failed for good: this one ends, too; NULL: there is no other */
} pull_settings;

/* To be freed after a failure, too. HT_ERR_ARGUMENT for an address that is no http or https URL, or a token that is no word. */
ht_status pull_settings_read(const options *o, pull_settings *out, ht_error *err);
/* Whether a transfer is to end: another one has failed, or a signal came. */
bool pull_stopped(const pull_settings *s);
void pull_settings_free(pull_settings *s);

#endif
