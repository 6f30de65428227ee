/* Which files of a folder hecate wrote itself: FOLDER/.hecate-files, with a line of each. Only these may be replaced or
 * removed there. A file that somebody changed has another digest, and is theirs. */
#pragma once
#include "runtime/base/text.h"

#include <stdbool.h>

#define HEC_MANIFEST_NAME ".hecate-files"

typedef struct {
  hec_text lines; /* "\n", then of each file: digest, bytes, its path below the folder, "\n" */
} hec_manifest;   /* zero-initialise */
void hec_manifest_free(hec_manifest *manifest);

/* That of `folder`, empty where there is none. HEC_BAD_INPUT: a file of that name which is no manifest. */
hec_status hec_manifest_read(const char *folder, hec_manifest *manifest) HEC_MUST_USE;
/* One more file; `name` is its path below the folder. Names and bytes may stand in it more than once. */
void hec_manifest_add(hec_manifest *manifest, const char *name, const char *data, size_t length);
/* All lines of another. */
void hec_manifest_join(hec_manifest *manifest, const hec_manifest *other);
/* Its lines of files that are none of `names`: those in the folder itself, and `below`: those in folders of it, too. */
void hec_manifest_join_others(hec_manifest *manifest, const hec_manifest *other, const char *const *names, int32_t n,
                              bool below);
/* What the file holds. */
void hec_manifest_text(const hec_manifest *manifest, hec_text *out);

/* Is what stands under `name` a file with the bytes of one of its lines? False where nothing is there. */
bool hec_manifest_has(const hec_manifest *manifest, const char *folder, const char *name);
/* HEC_BAD_INPUT, with what to do, where `name` is there and not in the manifest. */
hec_status hec_manifest_check(const hec_manifest *manifest, const char *folder, const char *name) HEC_MUST_USE;
