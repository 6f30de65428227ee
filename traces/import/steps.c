/* One step of all files: rows are copied into cells
 *   [block][column][expert], block = (layer, micro-batch), column = the rank or source that the row is from and counted
 *   per (layer, column). In the first step with tokens the layers become known, in order of their keys. Those that no
 *   rank sends a token to are left out: they are dense layers, since every token passes every MoE layer. A recorder may
 *   give them zero rows. Each later step must have the same layers, from every rank, as many times. O(cells) a step,
 *   and no allocation once steps have stopped growing. */
#include "traces/import/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hec_import_layer_name(int64_t key, char name[64]) {
  int64_t stage = key >> 41, block = key >> 20 & ((1 << 20) - 1), layer = key & ((1 << 20) - 1);
  int n = snprintf(name, 64, "layer %" PRId64, layer);
  if (block > 0)
    n += snprintf(name + n, 64 - (size_t)n, " of MTP block %" PRId64, block - 1);
  if (stage > 0)
    (void)snprintf(name + n, 64 - (size_t)n, " of pipeline stage %" PRId64, stage);
  return name;
}

/* ---- rows ---- */

static size_t find_slot(hec_import *job, int64_t key) {
  for (size_t i = 0, s = job->last_slot; i < job->n_slots; i++, s++) { /* as a rule it is that one or the next */
    s = s >= job->n_slots ? 0 : s;
    if (job->slots[s].key == key)
      return s;
  }
  return job->n_slots;
}

static void add_slot(hec_import *job, int64_t key) {
  size_t s = job->n_slots++, columns = (size_t)job->n_columns;
  HEC_RESERVE(job->slots, job->slots_capacity, job->n_slots);
  HEC_RESERVE(job->block_at, job->block_at_capacity, job->n_slots * HEC_IMPORT_MICRO_BATCHES);
  HEC_RESERVE(job->n_rows, job->n_rows_capacity, job->n_slots * columns);
  job->slots[s] = (hec_import_slot){.key = key, .key_before = -1};
  memset(job->block_at + s * HEC_IMPORT_MICRO_BATCHES, 0xff, HEC_IMPORT_MICRO_BATCHES * sizeof *job->block_at);
  memset(job->n_rows + s * columns, 0, columns * sizeof *job->n_rows);
}

static uint32_t *block_cells(hec_import *job, size_t block) {
  return job->cells + block * (size_t)job->n_columns * (size_t)job->n_experts;
}

static size_t block_of(hec_import *job, size_t slot, int32_t micro_batch) {
  int32_t *at = &job->block_at[slot * HEC_IMPORT_MICRO_BATCHES + (size_t)micro_batch];
  size_t n_cells = (size_t)job->n_columns * (size_t)job->n_experts;
  if (*at < 0) {
    *at = (int32_t)job->n_blocks++;
    HEC_RESERVE(job->cells, job->cells_capacity, job->n_blocks * n_cells);
    memset(block_cells(job, (size_t)*at), 0, n_cells * sizeof *job->cells);
  }
  return (size_t)*at;
}

/* What a step may take: 1 GiB of counts. */
static hec_status check_blocks(const hec_import_file *file, const hec_import_row *row, size_t slot,
                               int32_t micro_batch) {
  const hec_import *job = file->job;
  size_t n_cells = (size_t)job->n_columns * (size_t)job->n_experts;
  bool there = job->block_at[slot * HEC_IMPORT_MICRO_BATCHES + (size_t)micro_batch] >= 0;
  if (there || job->n_blocks + 1 <= HEC_TRACE_COUNTS_MAX / n_cells)
    return HEC_OK;
  return hec_import_fail(file, row->line, "layer",
                         "expected at most %d counts in a step (micro-batches x layers x ranks "
                         "x experts; --sum adds micro-batches up), found more",
                         HEC_TRACE_COUNTS_MAX);
}

hec_status hec_import_add_row(hec_import *job, const hec_import_queue *queue) {
  const hec_import_file *file = &queue->file;
  const hec_import_row *row = &queue->row;
  char name[64];
  int64_t key = hec_import_staged(file->rank / job->n_per_stage, row->layer);
  int32_t column = row->source >= 0 ? row->source : file->rank;
  HEC_ASSERT(column < job->n_columns && row->first >= 0 && row->n <= job->n_experts - row->first);
  size_t slot = find_slot(job, key);
  if (slot == job->n_slots) {
    if (job->settled)
      return hec_import_fail(file, row->line, "layer",
                             "expected the layers of the first step, found %s in step %" PRId64 " too",
                             hec_import_layer_name(key, name), row->step);
    if (slot == HEC_IMPORT_LAYERS_MAX)
      return hec_import_fail(file, row->line, "layer", "expected at most %d layers, found more", HEC_IMPORT_LAYERS_MAX);
    add_slot(job, key);
  }
  job->last_slot = slot;
  int32_t *n_rows = &job->n_rows[slot * (size_t)job->n_columns + (size_t)column];
  int32_t n_before = *n_rows - row->goes_on;
  HEC_ASSERT(n_before >= 0);
  if (n_before > 0 && !job->format->repeats)
    return hec_import_fail(file, row->line, "layer", "expected %s of step %" PRId64 " once, found it again",
                           hec_import_layer_name(key, name), row->step);
  if (n_before == HEC_IMPORT_MICRO_BATCHES)
    return hec_import_fail(file, row->line, "layer", "expected at most %d micro-batches of a step, found more",
                           HEC_IMPORT_MICRO_BATCHES);
  int32_t micro_batch = job->options.sum ? 0 : n_before;
  HEC_TRY(check_blocks(file, row, slot, micro_batch));
  size_t block = block_of(job, slot, micro_batch);
  uint32_t *cells = block_cells(job, block) + (size_t)column * (size_t)job->n_experts + (size_t)row->first;
  uint64_t total = 0;
  bool over = false;
  for (int32_t e = 0; e < row->n; e++) {
    total += row->counts[e];
    over = over || row->counts[e] > UINT32_MAX - cells[e];
    cells[e] += row->counts[e];
  }
  if (over)
    return hec_import_fail(file, row->line, "counts", "expected sums up to %" PRIu32 ", found more", UINT32_MAX);
  job->slots[slot].step_total += total;
  *n_rows = n_before + 1;
  if (row->ids && !job->no_transitions)
    hec_import_count_paths(job, slot, row);
  return HEC_OK;
}

/* ---- the end of a step ---- */

static int compare_keys(const void *a, const void *b) {
  int64_t x = ((const int64_t *)a)[0], y = ((const int64_t *)b)[0];
  return x < y ? -1 : x > y;
}

/* "layers 0 to 2", "layer 4" ...: those that are dense, in order. */
static void note_dense(hec_import *job) {
  HEC_SCOPED(hec_text) words = {0};
  char name[64];
  int32_t n = 0;
  for (size_t i = 0; i < job->n_slots; i++) {
    const hec_import_slot *slot = &job->slots[job->order[i]];
    if (slot->dense)
      hec_text_printf(&words, "%s%s", n++ > 0 ? ", " : "", hec_import_layer_name(slot->key, name));
  }
  if (n > 0) {
    hec_text_printf(&words, ": without tokens in the first step that has some, so dense");
    hec_import_note(job, "left out", words.data);
  }
}

/* "0 to 16, 18 to 47": numbers one behind the other. RUNS_SHOWN: more than any model's pattern of layers has. */
enum { RUNS_SHOWN = 64 };
typedef struct {
  hec_text words;
  int64_t first, last, n; /* of the run at hand; n: all numbers */
  int64_t n_runs;
} layer_runs;

static void end_run(layer_runs *runs) {
  if (runs->n_runs > 0 && runs->n_runs <= RUNS_SHOWN)
    hec_text_printf(&runs->words, runs->last > runs->first ? "%s%" PRId64 " to %" PRId64 : "%s%" PRId64,
                    runs->n_runs > 1 ? ", " : "", runs->first, runs->last);
}

static void add_to_runs(layer_runs *runs, int64_t number) {
  if (runs->n == 0 || number != runs->last + 1) {
    end_run(runs);
    runs->n_runs++;
    runs->first = number;
  }
  runs->last = number;
  runs->n++;
}

/* What is behind the decoder. */
static void note_behind(hec_import *job, int64_t n) {
  HEC_SCOPED(hec_text) words = {0};
  if (n == 0 || !job->format->behind)
    return;
  hec_text_printf(&words, "the last %" PRId64 " here: %s, taken as MoE layers like the others", n, job->format->behind);
  hec_import_note(job, "layers", words.data);
}

/* Layers of the decoder that have another number in the trace, and what is behind the decoder. */
static void note_numbers(hec_import *job) {
  layer_runs runs = {.last = -1};
  int64_t n_behind = 0, lowest = -1;
  for (size_t i = 0; i < job->n_slots; i++) {
    const hec_import_slot *slot = &job->slots[job->order[i]];
    bool behind = (slot->key >> 20 & ((1 << 20) - 1)) > 0;
    n_behind += behind && !slot->dense;
    if (slot->dense || behind)
      continue;
    lowest = runs.n == 0 ? slot->key : lowest;
    add_to_runs(&runs, slot->key);
  }
  end_run(&runs);
  if (runs.n_runs > RUNS_SHOWN)
    hec_text_printf(&runs.words, " and %" PRId64 " more parts up to %" PRId64, runs.n_runs - RUNS_SHOWN, runs.last);
  hec_text_printf(&runs.words,
                  runs.n > 1 ? " of the recorder are 0 to %" PRId64 " here" : " of the recorder is %" PRId64 " here",
                  runs.n - 1);
  if (runs.n_runs == 1)
    hec_text_printf(&runs.words, " (hecate-sim plan --export: --first-layer %" PRId64 ")", lowest);
  if (job->n_stages == 1 && runs.n > 0 &&
      (runs.n_runs > 1 || lowest > 0)) /* of a stage they count from its own first */
    hec_import_note(job, "layers", runs.words.data);
  hec_text_free(&runs.words);
  note_behind(job, n_behind);
}

/* Pipeline stages count from their own first layer each; in the trace they follow each other. */
static void note_stages(hec_import *job) {
  HEC_SCOPED(hec_text) words = {0};
  int64_t stage = -1, n = 0, first = 0;
  if (job->n_stages == 1)
    return;
  hec_text_printf(&words, "of %" PRId32 " pipeline stages are behind each other here", job->n_stages);
  for (size_t i = 0; i <= job->n_slots; i++) {
    const hec_import_slot *slot = i < job->n_slots ? &job->slots[job->order[i]] : NULL;
    if (slot && slot->dense)
      continue;
    if (n > 0 && (!slot || slot->key >> 41 != stage))
      hec_text_printf(&words, "%s stage %" PRId64 " is %" PRId64 " to %" PRId64, first == 0 ? ":" : ",", stage, first,
                      n - 1);
    if (slot && slot->key >> 41 != stage) {
      stage = slot->key >> 41;
      first = n;
    }
    n++;
  }
  hec_import_note(job, "layers", words.data);
}

/* ---- layers that are missing ---- */

/* A file of that rank, for messages: the one that its last row is from. */
static hec_import_file file_of(const hec_import *job, int32_t column) {
  const hec_import_queue *queue = &job->queues[0];
  for (int32_t i = job->n_queues - 1; i >= 0; i--)
    queue = job->queues[i].file.rank == column ? &job->queues[i] : queue;
  hec_import_file file = queue->file;
  file.input = queue->from ? queue->from : file.input;
  return file;
}

typedef struct {
  int64_t expected, found, distance; /* expected -1: no layer is missing */
} layer_hole;

/* The first layer of order[begin..end) that is further behind the one before than the closest two are. */
static layer_hole hole_of(const hec_import *job, size_t begin, size_t end, bool with_dense) {
  layer_hole hole = {.expected = -1};
  for (int pass = 0; pass < 2; pass++) {
    int64_t last = -1;
    for (size_t i = begin; i < end; i++) {
      const hec_import_slot *slot = &job->slots[job->order[i]];
      if (slot->dense && !with_dense)
        continue;
      int64_t distance = last < 0 ? 0 : slot->key - last;
      if (pass == 0 && distance > 0 && (hole.distance == 0 || distance < hole.distance))
        hole.distance = distance;
      if (pass == 1 && distance > hole.distance)
        return (layer_hole){last + hole.distance, slot->key, hole.distance};
      last = slot->key;
    }
  }
  return hole;
}

/* Layers may begin above 0, behind dense ones, and every second one may be dense. Any other hole is a layer that was
 * not recorded, or lost. Dense layers that have rows fill holes. Where only some of them have rows, MoE layers alone may
 * be even. Pipeline stages number layers in ways of their own, such as in chunks. */
static hec_status check_layers(const hec_import *job) {
  for (size_t i = 0, end = 0; i < job->n_slots && job->n_stages == 1 && !job->options.gaps; i = end) {
    int64_t block = job->slots[job->order[i]].key >> 20;
    while (end < job->n_slots && job->slots[job->order[end]].key >> 20 == block)
      end++;
    layer_hole hole = hole_of(job, i, end, true);
    char expected[64], found[64];
    if (hole.expected < 0 || hole_of(job, i, end, false).expected < 0)
      continue;
    hec_import_file file = file_of(job, 0);
    return hec_import_fail(
        &file, 0, "layer", "expected %s, as layers are %" PRId64 " apart (--gaps takes them as they come), found %s",
        hec_import_layer_name(hole.expected, expected), hole.distance, hec_import_layer_name(hole.found, found));
  }
  return HEC_OK;
}

/* The first step with tokens says which layers there are. */
static hec_status settle(hec_import *job) {
  int64_t *keys = hec_malloc(2 * job->n_slots, sizeof *keys);
  for (size_t s = 0; s < job->n_slots; s++) {
    keys[2 * s] = job->slots[s].key;
    keys[2 * s + 1] = (int64_t)s;
  }
  qsort(keys, job->n_slots, 2 * sizeof *keys, compare_keys);
  job->order = hec_malloc(job->n_slots, sizeof *job->order);
  job->n_layers = 0;
  for (size_t i = 0; i < job->n_slots; i++) {
    hec_import_slot *slot = &job->slots[keys[2 * i + 1]];
    job->order[i] = (int32_t)keys[2 * i + 1];
    slot->dense = slot->step_total == 0;
    job->n_layers += !slot->dense;
  }
  free(keys);
  HEC_TRY(check_layers(job));
  job->n_sources = job->format->totals ? 1 : job->n_columns / job->n_stages;
  job->counts =
      hec_malloc((size_t)job->n_layers * (size_t)job->n_sources * (size_t)job->n_experts, sizeof *job->counts);
  job->settled = true;
  note_dense(job);
  note_numbers(job);
  note_stages(job);
  return HEC_OK;
}

/* Are columns of a slot those of its pipeline stage? */
static bool in_stage(const hec_import *job, const hec_import_slot *slot, int32_t column) {
  return job->n_stages == 1 || column / job->n_per_stage == (int32_t)(slot->key >> 41);
}

/* What a column is, for messages. */
static const char *who(const hec_import *job) {
  bool requests = job->format->files == HEC_FILES_SEQUENCE && !job->format->totals;
  return job->n_sources > 0 && requests ? "source" : "rank";
}

static bool may_be_stages(const hec_import *job) {
  return job->format->files == HEC_FILES_ONE_PER_RANK && job->n_ranks > 1 && job->options.pp == 0;
}

static hec_status lacking(const hec_import *job, const hec_import_slot *slot, int32_t column, int32_t n, int32_t max) {
  char name[64], field[64];
  hec_import_file file = file_of(job, column);
  (void)snprintf(field, sizeof field, "%s %d: step %" PRId64, who(job), (int)column, job->step);
  if (n == 0)
    return hec_import_fail(
        &file, 0, field, "%s is missing%s", hec_import_layer_name(slot->key, name),
        may_be_stages(job) ? " (--pp N: ranks are those of N pipeline stages, each with layers of its own)" : "");
  return hec_import_fail(&file, 0, field,
                         "%s: expected %d micro-batches as of other layers or ranks, "
                         "found %d",
                         hec_import_layer_name(slot->key, name), (int)max, (int)n);
}

/* Every layer from every rank, as many times; a rank without any row of the step lacks the whole of it. */
static hec_status check_step(const hec_import *job, int32_t max) {
  size_t columns = (size_t)job->n_columns;
  for (int32_t c = 0; c < job->n_columns; c++) {
    int64_t sum = 0;
    for (size_t s = 0; s < job->n_slots; s++)
      sum += job->n_rows[s * columns + (size_t)c];
    if (sum == 0 && job->n_columns > 1) {
      char field[64];
      hec_import_file file = file_of(job, c);
      (void)snprintf(field, sizeof field, "%s %d", who(job), (int)c);
      return hec_import_fail(&file, 0, field, "step %" PRId64 " is missing, which others have%s", job->step,
                             job->n_records > 0 ? " (--until ends before it)" : "");
    }
    for (size_t s = 0; s < job->n_slots; s++)
      if (in_stage(job, &job->slots[s], c) && job->n_rows[s * columns + (size_t)c] != max)
        return lacking(job, &job->slots[s], c, job->n_rows[s * columns + (size_t)c], max);
  }
  return HEC_OK;
}

hec_status hec_import_close_step(hec_import *job, bool last, bool *complete) {
  uint64_t total = 0;
  int32_t max = 0;
  char name[64];
  for (size_t i = 0; i < job->n_slots * (size_t)job->n_columns; i++)
    max = job->n_rows[i] > max ? job->n_rows[i] : max;
  for (size_t s = 0; s < job->n_slots; s++)
    total += job->slots[s].step_total;
  *complete = false;
  hec_status status = check_step(job, max);
  if (status != HEC_OK && last && job->format->tail && job->n_records > 0) {
    hec_import_note(job, "left out", "the last step, which has not all its sources");
    job->n_incomplete++;
    return HEC_OK;
  }
  HEC_TRY(status);
  bool wanted = hec_import_wants(job, job->step);
  job->n_empty += total == 0 && wanted;
  if (total == 0)
    return HEC_OK;
  if (!job->settled)
    HEC_TRY(settle(job));
  for (size_t s = 0; s < job->n_slots; s++) {
    if (job->slots[s].dense && job->slots[s].step_total > 0)
      return hec_import_fail(&job->queues[0].file, 0, hec_import_layer_name(job->slots[s].key, name),
                             "expected no tokens, as in the first step, found some in step %" PRId64, job->step);
    if (job->format->totals && job->slots[s].step_total > UINT32_MAX)
      return hec_import_fail(&job->queues[0].file, 0, hec_import_layer_name(job->slots[s].key, name),
                             "expected at most %" PRIu32 " tokens over all ranks, found more in step %" PRId64,
                             UINT32_MAX, job->step);
    job->slots[s].total += wanted ? job->slots[s].step_total : 0;
  }
  hec_import_keep_paths(job);
  job->n_micro_batches = job->options.sum ? 1 : max;
  *complete = true;
  return HEC_OK;
}

/* Cells of a micro-batch into job->counts. */
void hec_import_gather(hec_import *job, int32_t micro_batch) {
  size_t experts = (size_t)job->n_experts, sources = (size_t)job->n_sources;
  uint32_t *to = job->counts;
  for (size_t i = 0; i < job->n_slots; i++) {
    const hec_import_slot *slot = &job->slots[job->order[i]];
    if (slot->dense)
      continue;
    size_t stage = job->n_stages > 1 ? (size_t)(slot->key >> 41) : 0;
    const uint32_t *from = block_cells(job, block_of(job, (size_t)job->order[i], micro_batch));
    if (!job->format->totals) {
      memcpy(to, from + stage * sources * experts, sources * experts * sizeof *to);
    } else {
      memset(to, 0, experts * sizeof *to);
      for (size_t c = 0; c < (size_t)job->n_columns; c++)
        for (size_t e = 0; e < experts; e++)
          to[e] += from[c * experts + e];
    }
    to += sources * experts;
  }
}

void hec_import_clear_step(hec_import *job) {
  size_t n_cells = (size_t)job->n_columns * (size_t)job->n_experts;
  if (job->cells)
    memset(job->cells, 0, job->n_blocks * n_cells * sizeof *job->cells);
  if (job->n_rows)
    memset(job->n_rows, 0, job->n_slots * (size_t)job->n_columns * sizeof *job->n_rows);
  for (size_t s = 0; s < job->n_slots; s++)
    job->slots[s].step_total = 0;
}
