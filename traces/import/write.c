/* An import into a file. The writer puts the header first, and transitions are complete only at the end. Reading
 * everything twice would halve the speed and rule out pipes. So where transitions are counted, records wait in a spool
 * as raw counts: of a log of tokens a small part of the input. The spool is a file beside the output that has no name
 * (unlinked when opened), so nothing can be left of it. Without transitions records are written as they come. */
#include "runtime/base/progress.h"
#include "traces/import/job.h"

#include "runtime/base/files.h"
#include "traces/import/import.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  hec_import *job;
  hec_trace_writer *writer;
  FILE *spool;
  const char *out;
} output;

static hec_status open_spool(output *o) {
  struct stat info;
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s.%ld.spool", o->out, (long)getpid());
  bool beside = strcmp(o->out, "-") != 0 && (stat(o->out, &info) != 0 || S_ISREG(info.st_mode));
  o->spool = beside ? hec_file_open(path.data, "w+b") : hec_file_temporary();
  int cause = errno;
  if (o->spool && beside)
    (void)remove(path.data);
  return o->spool ? HEC_OK : hec_fail(HEC_FAILED, "%s: cannot be written: %s", path.data, strerror(cause));
}

static hec_status spool_record(output *o, const hec_import_record *record) {
  size_t n = hec_load_cells(&record->load);
  bool good = fwrite(&record->iter, sizeof record->iter, 1, o->spool) == 1 &&
              fwrite(record->label, sizeof o->job->label, 1, o->spool) == 1 &&
              fwrite(record->load.counts, sizeof *record->load.counts, n, o->spool) == n;
  return good ? HEC_OK : hec_fail(HEC_FAILED, "%s: its spool cannot be written: %s", o->out, strerror(errno));
}

/* From the spool into the writer; the job's counts hold a record. */
static hec_status unspool(output *o, hec_load *load) {
  size_t n = hec_load_cells(load);
  if (fflush(o->spool) != 0 || fseek(o->spool, 0, SEEK_SET) != 0)
    return hec_fail(HEC_FAILED, "%s: its spool cannot be written: %s", o->out, strerror(errno));
  for (int64_t i = 0; i < o->job->n_records; i++) {
    int64_t iter = 0;
    bool good = fread(&iter, sizeof iter, 1, o->spool) == 1 &&
                fread(o->job->label, sizeof o->job->label, 1, o->spool) == 1 &&
                fread(load->counts, sizeof *load->counts, n, o->spool) == n;
    if (!good)
      return hec_fail(HEC_FAILED, "%s: its spool cannot be read", o->out);
    HEC_TRY(hec_trace_write(o->writer, iter, o->job->label, load));
  }
  return HEC_OK;
}

static hec_status write_all(output *o, hec_import_result *result) {
  hec_import_record record = {0};
  bool more = false, late = false;
  HEC_TRY(hec_import_next(o->job, &record, &more));
  late = hec_import_header_is_late(o->job);
  if (late) {
    HEC_TRY(open_spool(o));
  } else {
    hec_import_header(o->job, &result->header);
    HEC_TRY(hec_trace_create(o->out, &result->header, &o->writer));
  }
  while (more) {
    HEC_TRY(late ? spool_record(o, &record) : hec_trace_write(o->writer, record.iter, record.label, &record.load));
    hec_progress_at((double)o->job->n_records, 0, 0);
    HEC_TRY(hec_import_next(o->job, &record, &more));
  }
  hec_import_header(o->job, &result->header);
  if (!late)
    return HEC_OK;
  HEC_TRY(hec_trace_create(o->out, &result->header, &o->writer));
  return unspool(o, &record.load);
}

hec_status hec_import_write(hec_import *job, const char *out, hec_import_result *result) {
  output o = {.job = job, .out = out};
  hec_progress_stage("importing", "records");
  *result = (hec_import_result){.n_files = job->n_inputs, .n_ranks = job->n_ranks};
  hec_status status = write_all(&o, result);
  if (o.spool)
    (void)fclose(o.spool);
  if (status == HEC_OK)
    status = hec_trace_finish(o.writer);
  else
    hec_trace_abandon(o.writer);
  result->n_records = job->n_records;
  result->first_iter = job->first_iter;
  result->last_iter = job->last_iter;
  hec_import_sum_up(job, &result->read);
  result->notes = job->notes.data ? job->notes.data : "";
  return status;
}
