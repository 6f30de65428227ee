/* Plug-ins: shared libraries that link what the program itself does not (an MPI, CUDA), loaded when a backend is asked
 * for. The contract of each is in its folder's plugin.h.
 *
 * A plug-in is looked for in $HECATE_PLUGINS, in the folder of the executable, and in ../lib/hecate seen from there. If
 * this is part of a shared library, also in its folder, hecate and ../hecate seen from there. */
#pragma once
#include "runtime/base/text.h"

typedef struct {
  const char *file;   /* "hecate-cuda.so" */
  const char *symbol; /* what it exports: a function */
  bool global;        /* its libraries look for each other's symbols at run time (RTLD_GLOBAL) */
  /* Takes the function `symbol`, not yet cast. False: it belongs to another version of hecate. */
  bool (*accept)(void *symbol);
} hec_plugin_file;

/* Loads the first one that is accepted; it stays loaded for good. False: none. A file that is there and cannot be used is
 * a reason, added to `why` behind "; "; one that is nowhere is none. */
bool hec_plugin_load(const hec_plugin_file *wanted, hec_text *why);

/* Adds "FILE is not in A, not in B nor in ../lib/hecate". */
void hec_plugin_say_missing(const char *file, hec_text *why);
