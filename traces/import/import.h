/* Importing as a whole: inputs, then records in order, then the header; or all of it into a file. */
#pragma once
#include "traces/import/importer.h"

typedef struct {
  hec_import_input *input; /* [n] malloc family; paths too */
  size_t n, capacity;
  hec_text left_out; /* "" or files of folders that are named like the format's and do not begin like it */
  hec_text not_read; /* "" or what folders have besides files: folders that lie deeper, links to nothing, pipes */
} hec_import_inputs; /* zero-initialise */

/* Files, folders (two levels deep) and patterns of glob(7) to files of one format: `format`, or what content says. */
hec_status hec_import_find(const char *const *words, int32_t n_words, const hec_importer **format,
                           hec_import_inputs *inputs) HEC_MUST_USE;
void hec_import_inputs_free(hec_import_inputs *inputs);

/* Inputs must live as long as the job; options are copied, their texts not. */
hec_status hec_import_begin(const hec_importer *format, const hec_import_options *options,
                            const hec_import_input *inputs, int32_t n, hec_import **job) HEC_MUST_USE;
/* A file that it reads and nobody named; "": none. */
const char *hec_import_beside(const hec_import *job);
typedef struct {
  int64_t iter;
  const char *label; /* "" */
  hec_load load;
} hec_import_record;
/* The next record, valid till the next call; *more false at the end. */
hec_status hec_import_next(hec_import *job, hec_import_record *record, bool *more) HEC_MUST_USE;
/* Of what was read so far: sizes after the first record; transitions and iterations after the last. */
void hec_import_header(hec_import *job, hec_trace_header *header);
bool hec_import_header_is_late(const hec_import *job); /* it may get transitions: to be asked after the first record */
void hec_import_end(hec_import *job);
HEC_OPENED_BY(hec_import, hec_import_end)

typedef struct {
  hec_trace_header header; /* its texts live as long as the job */
  int64_t n_files, n_ranks, n_records, first_iter, last_iter;
  hec_text read;     /* "12 rows of counts in 3 steps; left out: nothing"; to be freed */
  const char *notes; /* "assumed ...\nleft out ...\n" */
} hec_import_result;
/* Everything into `out` (as hec_trace_create takes it). */
hec_status hec_import_write(hec_import *job, const char *out, hec_import_result *result) HEC_MUST_USE;
