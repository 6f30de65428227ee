/* What every comparison writes: its document on standard output, and a folder of files. */
#pragma once
#include "runtime/base/paths.h"
#include "runtime/base/temporary.h"
#include "tools/front/manifest.h"
#include "tools/front/timelines/timeline_format.h"

/* First of all: descriptors 0 to 2 that came closed are taken, so that no file or pipe of ours becomes "standard
 * output". Reading or writing there still fails. */
void hec_output_hold_standard(void);

/* Checked before anything runs. --out is a folder, or can become one. What hec_output_write may write or remove there
 * is nothing yet or a file that hecate wrote (manifest.h). It is none of those `reads`. It is made when there is
 * something to write. */
hec_status hec_output_check(const char *folder, const hec_path_use *reads, int32_t n_reads) HEC_MUST_USE;

/* Held while the folder is looked at, so that no run writes there meanwhile; it says that it waits for one. To be closed; -1: there
 * is no folder, or no lock is to be had. */
int hec_output_look(const char *folder);

/* The same for a file that is written at the end, after work that would be lost: it can be made or replaced. `option`
 * for the message. A regular file is replaced by a rename, so its folder must be writable. Standard output ("-") is
 * taken by what the command prints. */
hec_status hec_output_check_file(const char *option, const char *path) HEC_MUST_USE;

/* The same for --out PATH of a trace, where "-" is standard output: at a terminal no progress is shown then. */
hec_status hec_output_check_stream(const char *path) HEC_MUST_USE;
/* The same for a file whose name hecate made up from another: one that is there begins with `head`, as hecate's do, or is
 * empty. */
hec_status hec_output_check_made_up(const char *option, const char *path, const char *head) HEC_MUST_USE;

/* The folder, made where it is not there and held (flock) until hec_output_end. If runs end at the same time, their
 * files come one after the other, never mixed. The later one says that it waits. Where that cannot be had (file systems
 * without locks, folders that may be written and not read) nothing is held. At the end a folder that was made and is
 * empty still goes again. */
typedef struct {
  bool begun, made;
  int lock;
} hec_output_held; /* zero-initialise */
hec_status hec_output_begin(const char *folder, hec_output_held *held) HEC_MUST_USE;
void hec_output_end(const char *folder, hec_output_held *held); /* also where it did not begin */

typedef struct {
  hec_text json, csv, timeline, report, page;
} hec_output_files; /* zero-initialise */
void hec_output_free(hec_output_files *files);
HEC_SCOPED_BY(hec_output_files, hec_output_free)
/* Between hec_output_begin and hec_output_end. summary.json (put in place last), summary.csv, timeline.json, compare.md
 * (`report`, Markdown), report.html (`page`): all that have text, or none of them. Those without are removed: an earlier
 * run's would stand beside other numbers. A file that is not hecate's is neither replaced nor removed: an error. `place`
 * (NULL: nothing) as of hec_write_files_with; `below` (NULL: none): files that it puts in place. The manifest names them all. */
hec_status hec_output_write(const char *folder, const hec_output_files *files, const hec_manifest *below,
                            hec_status (*place)(void *context), void *context) HEC_MUST_USE;
/* The same for files under other names, the folder held meanwhile. What `files` has no text of is removed, if it is hecate's. */
enum { HEC_NAMED_FILES_MAX = 7 };
typedef struct {
  const char *name;
  hec_text text;
} hec_named_file;
hec_status hec_output_check_named(const char *folder, const char *const *names, int32_t n, const hec_path_use *reads,
                                  int32_t n_reads) HEC_MUST_USE;
hec_status hec_output_write_named(const char *folder, const hec_named_file *files, int32_t n) HEC_MUST_USE;
/* The line that says so; `page`, `report`: with a report.html, a compare.md; `format`: of timelines. */
void hec_output_mention(const char *folder, bool page, bool report, const hec_timeline_format *format, hec_text *out);

hec_status hec_output_print(const hec_text *text) HEC_MUST_USE; /* to standard output; at a terminal with colours */
