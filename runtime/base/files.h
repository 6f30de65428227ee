/* Opening and reading what others wrote. Running out of memory ends the run here as everywhere (arena.h): it is never
 * "cannot be opened", which would blame the file. */
#pragma once
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* fopen. NULL: errno says why, and it is not for lack of memory. All of the project opens its streams here. */
FILE *hec_file_open(const char *path, const char *mode);
/* The same for tmpfile and for opendir. */
FILE *hec_file_temporary(void);
DIR *hec_folder_open(const char *path);
/* A file as a whole, at most `limit` bytes, with a zero behind it: *bytes is the caller's to free, NULL on failure.
 * `wanted` is what messages call it: "a JSON file". */
hec_status hec_file_read(const char *path, const char *wanted, size_t limit, char **bytes, size_t *length) HEC_MUST_USE;
/* Adds the path of `name` as seen from `file`'s folder: names in a file are relative to it. Absolute ones stay. What
 * comes through a pipe (/dev/stdin, /dev/fd/N) has the working folder. */
void hec_file_beside(const char *file, const char *name, hec_text *path);
/* The other way round: adds `path`, which is there, as seen from `file`'s folder, which need not be there yet. */
void hec_file_seen_from(const char *file, const char *path, hec_text *name);

/* Takes a file that is open for writing for this process alone; children that are forked do not have it. Until it is closed. False:
 * another process has it. A file system without locks takes all. */
bool hec_file_claim(int file);
