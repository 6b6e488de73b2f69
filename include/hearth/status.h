/* Status codes and error records: how every fallible call of Hearth reports.
 *
 * A call that can fail returns an `ht_status`, takes an `ht_error *` last, and leaves its outputs NULL when it fails.
 * The library never prints, exits or aborts. Array expressions use the second form described in array.h: they return
 * NULL and record the first error in their scope.
 *
 * Options: a struct of options is made by its function ht_..._options_init(&options, sizeof options), which fills in
 * the defaults, and then changed. So 0 can mean off, and a program works with a later library, whose struct has more
 * fields at its end. NULL options mean the defaults; a struct that was not made so is HT_ERR_ARGUMENT. Pointers in
 * options are lent for the call. */
#ifndef HEARTH_STATUS_H
#define HEARTH_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(HT_STATIC)
#define HT_API __attribute__((visibility("default")))
#else
#define HT_API
#endif

#if defined(__GNUC__)
#define HT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HT_PRINTF(fmt, args)
#endif

typedef enum ht_status {
    HT_OK = 0,
    HT_ERR_ARGUMENT,    /* the caller passed something the call does not accept */
    HT_ERR_MEMORY,      /* an allocation failed or would exceed a limit */
    HT_ERR_IO,          /* the operating system refused a file operation */
    HT_ERR_FORMAT,      /* a file or text is malformed */
    HT_ERR_UNSUPPORTED, /* well formed, but not something this build can do */
    HT_ERR_LIMIT,       /* a limit was reached: context, memory, counts */
    HT_ERR_CANCELLED,   /* the caller asked to stop */
    HT_ERR_INTERNAL,    /* a defect in Hearth itself */
    HT_ERR_INDEX,       /* an array has no such axis, or an axis no such place */
    HT_ERR_BUSY         /* too much waits already: the same call may work later */
} ht_status;

/* The error, its location and the fix. Zero-initialise before the first use; a call writes it only on failure.
 * `message` is one UTF-8 sentence without a final newline; of one that is too long, "..." takes the place of the
 * middle. */
typedef struct ht_error {
    ht_status status;
    char message[768];
} ht_error;

/* Short lower-case name of a status, for logs and JSON ("ok", "argument", ...). Never NULL. */
HT_API const char *ht_status_name(ht_status status);

#ifdef __cplusplus
}
#endif
#endif
