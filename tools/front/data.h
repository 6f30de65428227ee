/* Files that hecate reads without being given them, wherever it is started. They are found from the place of the
 * program, which may have been moved together with what was installed beside it. */
#pragma once
#include "runtime/base/text.h"

/* A file of the project, `below` its top folder ("validate/gate/gate.json"). It is in share/hecate beside a program
 * that stands where it was built, and in the folder of data of an installed one. `option` names the file instead: the
 * error says so. */
hec_status hec_data_find(const char *option, const char *below, hec_text *path) HEC_MUST_USE;

/* A folder of the project, `below` as in hec_data_find ("python": the package hecate). It need not be there. */
void hec_data_folder(const char *below, hec_text *path);

/* Recorded data that is no part of the project: `below` $HECATE_SHARED, else below the folder shared/ beside that of the
 * project's files. It need not be there. */
void hec_data_shared(const char *below, hec_text *path);
/* `given`, or else the second of these, where it must be readable: an error that says how to name it when it is not. */
hec_status hec_data_find_recorded(const char *given, const char *below, hec_text *path) HEC_MUST_USE;
