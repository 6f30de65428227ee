/* Timelines of which every rank has a file: DIR/FORMAT/ROW/PREFIX<rank>SUFFIX. They are written below DIR/FORMAT.part,
 * which takes the place of DIR/FORMAT when all are there, together with the files beside it. So the folder is whole or
 * as it was, whatever signal comes. Only what the manifest of DIR lists is replaced. DIR is held meanwhile
 * (hec_output_begin). A run that was killed (SIGKILL) may leave FORMAT.part, or what was there before as FORMAT.old.
 * The next run removes the first, and removes the second or puts it back. Timelines of other formats in DIR, of runs
 * before, are removed in the end. Links are not followed. */
#pragma once
#include "tools/front/output.h"
#include "tools/front/timelines/timeline_format.h"

#include <pthread.h>

typedef struct {
  const char *out; /* DIR */
  const hec_timeline_format *format;
  hec_output_held held;  /* DIR, from begin to finish */
  bool parted;           /* likewise: the part is ours */
  hec_manifest before;   /* likewise: what is in DIR that hecate wrote */
  hec_manifest written;  /* by this run, below DIR */
  pthread_mutex_t mutex; /* of it */
} hec_timeline_files;

/* Before anything runs: hec_output_check, and HEC_BAD_INPUT where DIR/FORMAT, FORMAT.part or FORMAT.old is there and
 * anything but what an earlier run wrote. `files` is not begun. */
hec_status hec_timeline_files_check(const hec_timeline_files *files, const hec_path_use *reads,
                                    int32_t n_reads) HEC_MUST_USE;
/* Holds DIR, where another run is writing into it when that is done. For a format of one file that is all. */
hec_status hec_timeline_files_begin(hec_timeline_files *files) HEC_MUST_USE;
/* A hec_timeline_out's put, context hec_timeline_files: may be called by several threads, for different rows. */
hec_status hec_timeline_files_put(void *files, const char *folder, int32_t rank, const hec_text *file) HEC_MUST_USE;
/* hec_output_write below DIR, the folder with it; or removes the part where `status` is not HEC_OK. After begin, whatever it
 * returned. Returns `status` or
 * what went wrong here. */
hec_status hec_timeline_files_finish(hec_timeline_files *files, hec_status status,
                                     const hec_output_files *out) HEC_MUST_USE;

/* The same files one behind the other in a text, for those who cannot write yet. Context of the put: the text. */
hec_status hec_timeline_pack(void *text, const char *folder, int32_t rank, const hec_text *file) HEC_MUST_USE;
/* hec_output_write, where files->timeline may be such a text: those are unpacked below `folder`. */
hec_status hec_timeline_write_out(const char *folder, const hec_timeline_format *format,
                                  hec_output_files *files) HEC_MUST_USE;

/* --timeline-format NAME beside --out DIR (NULL: absent); name NULL: the default. */
hec_status hec_timeline_format_arg(const char *name, const char *out, const hec_timeline_format **format) HEC_MUST_USE;

#define HEC_TIMELINE_FORMAT_ARG(target)                                                                                \
  HEC_ARG_WORD("--timeline-format", target, "F",                                                                       \
               "with --out: chrome (default), timeline.json for Perfetto; kineto, kineto/POLICY/rank0.json ... for "   \
               "HolisticTraceAnalysis; chakra, execution traces chakra/POLICY/et.0.et ... for ASTRA-sim")
