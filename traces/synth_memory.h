/* GSL and memory: its default handler aborts. */
#pragma once
#include <stdbool.h>

/* From now on GSL without memory ends the run as everything else does (hec_no_memory). Other errors abort, as by default; with
 * `tolerant` their codes are returned. Before each use of GSL: the handler is the process's, and so are all errors. */
void hec_gsl_watch_memory(bool tolerant);
