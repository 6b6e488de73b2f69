/* The end of a noun after a count in a message: "%lld token%s", n, ht_plural(n). A macro, for counts of any type. */
#ifndef HT_BASE_PLURAL_H
#define HT_BASE_PLURAL_H

#define ht_plural(n) ((n) == 1 ? "" : "s")

#endif
