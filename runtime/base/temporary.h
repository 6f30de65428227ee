/* Files are written under a temporary name, then renamed: each is whole or absent. A signal or a lack of memory that ends
 * the program removes those that are being written. One thread writes, but below folders. */
#pragma once
#include "runtime/base/text.h"

#include <stdio.h>

typedef struct {
  const char *path, *data; /* [length] bytes of data */
  size_t length;
} hec_file_out;

/* Writes at most 8 files under temporary names in their folders, then renames. So each file is whole or absent, and
 * when one cannot be written (a full disk) none is touched. */
hec_status hec_write_files(const hec_file_out *files, int32_t n) HEC_MUST_USE;
/* With something else that takes its place with them. `place` is called when all are written and none is renamed yet,
 * in the order given. Where it fails, none is touched. */
hec_status hec_write_files_with(const hec_file_out *files, int32_t n, hec_status (*place)(void *context),
                                void *context) HEC_MUST_USE;
hec_status hec_write_file(const char *path, const char *data, size_t length) HEC_MUST_USE;

/* Adds to `name` what `path` is called while it is written, PATH.PID.part, and remembers that. What killed runs left
 * under such a name of the same path is removed first. That is done where their process is gone and nobody holds the
 * file, since the process may be of another machine or container. */
void hec_temporary_begin(const char *path, hec_text *name);
/* The file is being written: held until it is closed. */
void hec_temporary_hold(FILE *file);

/* Every path from its making until it was renamed or removed, however many; a folder goes last, and only if it is empty. */
void hec_temporary_add(const char *path);
void hec_temporary_drop(const char *path);
/* For a file or folder below a folder that is written as a whole, before it is made. A signal removes all of them, the
 * last one first. They are never dropped: a signal does not find what was renamed since. Several threads may; while a
 * signal is cleaning up the call does not return. */
void hec_temporary_add_below(const char *path);
/* From one to the other a signal that would end the program waits: steps that belong together are all done, or none is. One
 * thread, not nested. Nothing waits for SIGKILL. */
void hec_temporary_shield(void);
void hec_temporary_unshield(void);
/* In a forked child: the files that its parent is writing are none of its business. */
void hec_temporary_forget(void);
/* All of them now, for a program that cannot go on; from any thread or handler. What this process did not add stays. */
void hec_temporary_remove(void);

/* For programs: SIGINT, SIGTERM, SIGHUP and SIGPIPE remove the files, then end the program as they always do (ignored
 * ones stay ignored). Writing past a file size limit becomes an error like a full disk (SIGXFSZ is ignored). */
void hec_temporary_watch_signals(void);
