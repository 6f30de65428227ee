/* Rows of many files, step by step. Each file (or sequence of files) is a queue with one row waiting. The step at hand is
 * the smallest of those waiting, and every queue gives its rows of that step before any goes on. So no more than one step
 * is in memory, and files may be of any length. A merge of L queues asks each once a step: O(rows + steps x L). */
#include "traces/import/import.h"
#include "runtime/base/table.h"
#include "traces/import/axes.h"
#include "traces/import/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MAX ((INT64_C(1) << 53) - 1)

/* ---- queues ---- */

static hec_status open_next(hec_import *job, hec_import_queue *queue) {
  queue->file.input = job->inputs[queue->first_file + queue->at];
  queue->file.state = memset(hec_malloc(1, job->format->state_bytes), 0, job->format->state_bytes);
  queue->is_open = true;
  queue->any = false;
  queue->step_before = queue->file.dated ? queue->file_step : -1;
  queue->file_step = job->format->numbered ? queue->file_step : -1;
  queue->file.dated = false;
  return job->format->open ? job->format->open(&queue->file) : HEC_OK;
}

static void close_queue(hec_import_queue *queue) {
  if (queue->is_open) {
    queue->file.job->format->close(queue->file.state);
    free(queue->file.state);
  }
  queue->is_open = false;
}

/* Steps in order, as the file has them; counted through where a queue has several files. */
static hec_status number_step(const hec_import *job, hec_import_queue *queue) {
  int64_t step = queue->row.step;
  if (step < 0 || step > STEP_MAX || step < queue->file_step)
    return hec_import_fail(&queue->file, queue->row.line, "step",
                           "expected from %" PRId64 " to %" PRId64 ", found %" PRId64 ": sort the file by step",
                           queue->file_step < 0 ? 0 : queue->file_step, STEP_MAX, step);
  if (queue->file.dated && step <= queue->step_before)
    return hec_import_fail(&queue->file, queue->row.line, "step",
                           "expected one behind %" PRId64
                           ", the last of %s (files follow each other in time), found %" PRId64,
                           queue->step_before, job->inputs[queue->first_file + queue->at - 1]->path, step);
  queue->n_steps += step != queue->file_step;
  queue->file_step = step;
  if (queue->n_files > 1 && !job->format->numbered)
    queue->row.step = queue->n_steps - 1;
  return HEC_OK;
}

/* The next row of a queue into its waiting place. */
static hec_status refill(hec_import *job, hec_import_queue *queue) {
  queue->waiting = false;
  while (!queue->ended) {
    bool more = false;
    if (!queue->is_open)
      HEC_TRY(open_next(job, queue));
    queue->row = (hec_import_row){.source = -1};
    HEC_TRY(job->format->next(&queue->file, &queue->row, &more));
    if (more) {
      HEC_TRY(number_step(job, queue));
      queue->waiting = queue->any = true;
      return HEC_OK;
    }
    if (!queue->any)
      return hec_import_fail(&queue->file, 0, "records", "expected at least one, found none");
    close_queue(queue);
    queue->ended = ++queue->at == queue->n_files;
  }
  return HEC_OK;
}

/* ---- steps ---- */

static hec_status need(const hec_import *job, int64_t value, const char *field, const char *option) {
  if (value > 0)
    return HEC_OK;
  return hec_import_fail(&job->queues[0].file, 0, field, "expected %s, as files of %s do not say it, found none",
                         option, job->format->name);
}

/* Once the first row is there: what nobody has said yet must be said by the user, before much is read. */
static hec_status check_facts(hec_import *job) {
  HEC_TRY(need(job, job->n_experts, "experts", "--experts N"));
  HEC_TRY(need(job, job->top_k, "top_k", "--top-k N"));
  if (job->top_k > job->n_experts)
    return hec_import_fail(&job->queues[0].file, 0, "top_k",
                           "expected at most %" PRId32 " (the experts), found %" PRId32, job->n_experts, job->top_k);
  job->n_columns = job->n_sources > 0 ? job->n_sources : job->n_ranks;
  HEC_ASSERT(job->n_stages == 1 || job->n_sources == 0);
  return HEC_OK;
}

static void set_label(hec_import *job) {
  const hec_import_queue *queue = &job->queues[0];
  job->label[0] = 0;
  if (job->n_queues != 1 || queue->n_files == 1 || job->n_columns != 1)
    return;
  const char *slash = strrchr(queue->file.input->path, '/'), *name = slash ? slash + 1 : queue->file.input->path;
  size_t n = strcspn(name, "."), max = sizeof job->label - 1;
  n = n < max ? n : max;
  for (size_t i = 0; i < n; i++)
    job->label[i] = (char)((unsigned char)name[i] < 0x20 || (unsigned char)name[i] >= 0x7f ? '?' : name[i]);
  job->label[n] = 0;
}

/* Rows of the smallest step waiting; *any false at the end. */
static hec_status read_step(hec_import *job, bool *any) {
  *any = false;
  for (int32_t i = 0; i < job->n_queues; i++) {
    hec_import_queue *queue = &job->queues[i];
    if (!queue->waiting && !queue->ended)
      HEC_TRY(refill(job, queue));
    if (queue->waiting && (!*any || queue->row.step < job->step))
      job->step = queue->row.step;
    *any = *any || queue->waiting;
  }
  if (!*any || (job->options.last_step >= 0 && job->step > job->options.last_step)) {
    job->stopped = *any;
    *any = false;
    return HEC_OK;
  }
  if (job->n_columns == 0)
    HEC_TRY(check_facts(job));
  set_label(job);
  for (int32_t i = 0; i < job->n_queues; i++) {
    hec_import_queue *queue = &job->queues[i];
    while (queue->waiting && queue->row.step == job->step) {
      if (!hec_import_wants(job, job->step))
        queue->row.ids = NULL;
      HEC_TRY(hec_import_add_row(job, queue));
      job->n_rows_read += !queue->row.goes_on;
      job->n_lines_read += queue->row.n_lines;
      queue->from = queue->file.input;
      queue->from_step = queue->file_step;
      queue->from_line = queue->row.line;
      HEC_TRY(refill(job, queue));
    }
  }
  return HEC_OK;
}

/* Recorders log every step, or every tenth: steps of a file are as far apart as the first two of those that are taken. The
 * next file may go on, or begin with a lower step, as another recording does; a higher one says that a file is missing. */
static hec_status check_gap(hec_import_queue *queue) {
  hec_import_file file = queue->file;
  int64_t gap = queue->from_step - queue->checked_step;
  bool first = queue->checked != queue->from;
  if (!first && gap == 0) /* no row of this step */
    return HEC_OK;
  file.input = queue->from;
  if (queue->stride > 0 && (first ? gap > queue->stride : gap != queue->stride))
    return hec_import_fail(&file, queue->from_line, "step",
                           "expected %" PRId64 ", as steps are %" PRId64
                           " apart (--gaps takes them as they come), found %" PRId64,
                           queue->checked_step + queue->stride, queue->stride, queue->from_step);
  queue->stride = first ? -1 : gap;
  queue->checked = queue->from;
  queue->checked_step = queue->from_step;
  return HEC_OK;
}

static hec_status check_gaps(hec_import *job) {
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < job->n_queues && !job->options.gaps && status == HEC_OK; i++)
    status = check_gap(&job->queues[i]);
  return status;
}

static bool all_ended(const hec_import *job) {
  for (int32_t i = 0; i < job->n_queues; i++)
    if (job->queues[i].waiting)
      return false;
  return true;
}

static hec_status finish(hec_import *job) {
  job->ended = true;
  if (job->n_records == 0)
    return hec_import_fail(&job->queues[0].file, 0, "steps",
                           job->n_empty > 0 ? "expected at least one with tokens, found none"
                                            : "expected at least one from --from to --until, found none");
  if (job->n_empty > 0) {
    char words[64];
    (void)snprintf(words, sizeof words, "%" PRId64 " step%s without any token", job->n_empty,
                   job->n_empty > 1 ? "s" : "");
    hec_import_note(job, "left out", words);
  }
  int64_t n_lost = job->n_left[HEC_LEFT_REQUEST], n_read = job->queues[0].file.kept;
  if (n_lost > n_read && !job->options.gaps)
    return hec_import_fail(&job->queues[0].file, 0, "requests",
                           "expected experts of most of them (--gaps takes those that have some), found %" PRId64
                           " with and %" PRId64 " without",
                           n_read, n_lost);
  hec_import_say_left(job);
  hec_import_say_tokens(job);
  hec_axes_say_sizes(job);
  return HEC_OK;
}

static hec_status next_record(hec_import *job, bool *more) {
  while (job->micro_batch == job->n_micro_batches) {
    bool any = false, complete = false;
    job->micro_batch = job->n_micro_batches = 0;
    hec_import_clear_step(job);
    HEC_TRY(read_step(job, &any));
    if (!any) {
      *more = false;
      return finish(job);
    }
    HEC_TRY(hec_import_close_step(job, all_ended(job), &complete));
    bool wanted = hec_import_wants(job, job->step);
    job->n_steps_read++;
    job->n_unwanted += !wanted;
    if (wanted)
      HEC_TRY(check_gaps(job));
    if (!complete || !wanted)
      job->n_micro_batches = 0;
  }
  hec_import_gather(job, job->micro_batch++);
  hec_import_judge_record(job);
  job->first_iter = job->n_records == 0 ? job->step : job->first_iter;
  job->last_iter = job->step;
  job->n_records++;
  *more = true;
  return HEC_OK;
}

hec_status hec_import_next(hec_import *job, hec_import_record *record, bool *more) {
  *more = false;
  if (job->ended)
    return HEC_OK;
  hec_status status = next_record(job, more);
  job->ended = job->ended || status != HEC_OK;
  if (*more)
    *record = (hec_import_record){
        .iter = job->step, .label = job->label, .load = {job->n_layers, job->n_sources, job->n_experts, job->counts}};
  return status;
}

/* ---- beginning and end ---- */

static hec_status read_counted(const hec_import_options *options, hec_counted *counted) {
  int32_t after;
  if (!options->counted)
    return HEC_OK;
  HEC_TRY(hec_word_of("before_drop after_drop", "`counted`", options->counted, &after));
  *counted = after ? HEC_COUNTED_AFTER_DROP : HEC_COUNTED_BEFORE_DROP;
  return HEC_OK;
}

/* What names of files cannot say: whether there were more ranks, and that files without ranks are one recording. */
static void assume_files(hec_import *job) {
  const hec_import_queue *queue = &job->queues[0];
  bool by_rank = queue->file.given >= 0, asked = job->options.ranks > 0 || job->options.renumber || job->knows_ranks;
  if (by_rank && !asked && job->n_ranks == 1)
    hec_import_assume(job, "rank 0 is all there is (--ranks N checks)");
  else if (by_rank && !asked)
    hec_import_assume(job, "ranks 0 to %d are all there are (--ranks N checks)", (int)job->n_ranks - 1);
  if (job->n_queues == 1 && queue->n_files > 1 && !by_rank && !job->format->numbered)
    hec_import_assume(job,
                      "files follow each other in time, whatever ranks their names have; steps are counted through");
}

static hec_status begin(hec_import *job, const hec_import_input *inputs, int32_t n) {
  const hec_import_options *o = &job->options;
  const hec_import_input *beside = NULL;
  HEC_TRY(read_counted(o, &job->counted));
  if (o->phase && !hec_import_phase_known(o->phase))
    return hec_fail(HEC_BAD_INPUT,
                    "--phase: expected train, prefill, decode, prefill+decode or forward, found \"%.40s\"", o->phase);
  if (o->axes && !hec_axes_known(o->axes))
    return hec_fail(HEC_BAD_INPUT, "--axes: expected one of hecate-trace import --help, found \"%.60s\"", o->axes);
  if (o->axes && !job->format->axes)
    return hec_fail(HEC_BAD_INPUT, "--axes: expected a format with bare tables of numbers, found %s",
                    job->format->name);
  HEC_TRY(hec_import_place(job, inputs, n, &beside));
  job->n_stages = o->pp > 0 ? (int32_t)o->pp : 1;
  if (job->n_ranks % job->n_stages != 0)
    return hec_fail(HEC_BAD_INPUT, "--pp: expected a number that divides the %d ranks, found %d", (int)job->n_ranks,
                    (int)job->n_stages);
  if (job->n_stages > 1 && job->format->files != HEC_FILES_ONE_PER_RANK)
    return hec_fail(HEC_BAD_INPUT, "--pp: expected a format with files of ranks, found %s", job->format->name);
  job->n_per_stage = job->n_ranks / job->n_stages;
  for (int32_t i = 0; i < job->n_queues; i++)
    job->queues[i].file.input = job->inputs[job->queues[i].first_file];
  if (job->format->phase && strcmp(job->format->phase, "train") != 0)
    hec_import_assume_phase(job, job->format->phase);
  HEC_TRY(job->format->begin ? job->format->begin(job, beside) : HEC_OK);
  assume_files(job);
  return HEC_OK;
}

hec_status hec_import_begin(const hec_importer *format, const hec_import_options *options,
                            const hec_import_input *inputs, int32_t n, hec_import **begun) {
  hec_import *job = hec_malloc(1, sizeof *job);
  *job = (hec_import){.format = format,
                      .options = *options,
                      .n_experts = (int32_t)options->experts,
                      .top_k = (int32_t)options->top_k,
                      .counted = format->counted,
                      .no_transitions = options->no_transitions,
                      .step = -1};
  *begun = NULL;
  hec_status status = begin(job, inputs, n);
  if (status == HEC_OK)
    *begun = job;
  else
    hec_import_end(job);
  return status;
}

const char *hec_import_beside(const hec_import *job) {
  return job->beside.length > 0 ? job->beside.data : "";
}

void hec_import_end(hec_import *job) {
  if (!job)
    return;
  for (int32_t i = 0; i < job->n_queues; i++) {
    close_queue(&job->queues[i]);
  }
  hec_text_free(&job->words[0]);
  hec_text_free(&job->words[1]);
  hec_text_free(&job->model);
  hec_text_free(&job->phase);
  hec_text_free(&job->source);
  hec_text_free(&job->notes);
  hec_text_free(&job->name);
  hec_text_free(&job->header_notes);
  hec_text_free(&job->beside);
  free(job->inputs);
  free(job->queues);
  free(job->slots);
  free(job->order);
  free(job->block_at);
  free(job->cells);
  free(job->n_rows);
  free(job->counts);
  free(job->transitions);
  free(job->header_transitions);
  free(job->sorted);
  free(job->recent);
  free(job->fresh);
  free(job);
}

/* ---- header ---- */

bool hec_import_header_is_late(const hec_import *job) {
  return job->format->paths && !job->no_transitions && job->n_layers > 1;
}

/* The name that was given, or that of the first file or its folder. */
static void name_trace(hec_import *job) {
  const char *path = job->inputs[0]->path, *end = path + strlen(path);
  job->name.length = 0;
  if (job->options.name) {
    hec_text_add_plain(&job->name, job->options.name);
    return;
  }
  const char *from = end;
  bool folder = job->n_inputs > 1;
  while (from > path && from[-1] != '/')
    from--;
  int up = !folder ? 0 : job->format->rank_of ? 2 : 1; /* folders that are ranks name nothing */
  for (; up > 0 && from > path; up--) {
    end = from - 1;
    for (from = end; from > path && from[-1] != '/';)
      from--;
  }
  /* Streams have no names, nor have "." and "..". */
  size_t n = up == 0 && !hec_import_is_stream(job->inputs[0]) ? (size_t)(end - from) : 0;
  n = folder && strspn(from, ".") >= n ? 0 : n;
  const char *dot = folder ? NULL : memchr(from, '.', n);
  n = dot && dot > from ? (size_t)(dot - from) : n;
  hec_text_add_bytes(&job->name, n > 0 ? from : job->format->name, n > 0 ? n : strlen(job->format->name));
  hec_make_plain(job->name.data);
}

/* What is known: the format. Who wrote such files the import cannot know: others use the format too. */
static void name_source(hec_import *job) {
  job->source.length = 0;
  if (job->n_inputs == 1)
    hec_text_printf(&job->source, "a file of the format %s", job->format->name);
  else
    hec_text_printf(&job->source, "%" PRId32 " files of the format %s", job->n_inputs, job->format->name);
}

void hec_import_header(hec_import *job, hec_trace_header *header) {
  name_trace(job);
  name_source(job);
  job->header_notes.length = 0;
  hec_text_printf(&job->header_notes, "imported from %s", job->format->name);
  for (const char *p = job->notes.data; p && *p;) { /* lines become clauses */
    size_t n = strcspn(p, "\n");
    hec_text_add(&job->header_notes, ";");
    for (size_t i = 0, blank = 1; i < n; i++) {
      if (p[i] != ' ')
        hec_text_printf(&job->header_notes, "%s%c", blank ? " " : "", p[i]);
      blank = p[i] == ' ';
    }
    p += n + (p[n] == '\n');
  }
  free(job->header_transitions);
  job->header_transitions = job->ended ? hec_import_transitions(job) : NULL;
  const char *phase = job->options.phase      ? job->options.phase
                      : job->phase.length > 0 ? job->phase.data
                      : job->format->phase    ? job->format->phase
                                              : "train";
  if (job->options.model) {
    job->model.length = 0;
    hec_text_add_plain(&job->model, job->options.model);
  }
  const char *model = job->model.data ? job->model.data : "";
  *header = (hec_trace_header){.name = job->name.data,
                               .source = job->source.data,
                               .model = (char *)model,
                               .notes = job->header_notes.data,
                               .phase_text = (char *)phase,
                               .phase = strcmp(phase, "train") == 0 ? HEC_PHASE_TRAIN : HEC_PHASE_FORWARD,
                               .n_layers = job->n_layers,
                               .n_experts = job->n_experts,
                               .top_k = job->top_k,
                               .n_sources = job->n_sources,
                               .per_source = job->n_sources > 1,
                               .ranks = job->header_ranks,
                               .counted = job->counted,
                               .transitions = job->header_transitions,
                               .transitions_over = true,
                               .transitions_first = job->first_iter,
                               .transitions_last = job->last_iter};
}
