/* Importers against counts made beside the text. Rows of equal length in every spacing, router traces of random ranks,
 * layers, micro-batches and stages. Their counts and transitions are added up again token by token. */
#include "tests/support/test.h"
#include "tests/traces/import_case.h"
#include "traces/import/import.h"
#include "traces/import/job.h"

#include <inttypes.h>
#include <string.h>

/* ---- hec_scan_rows ---- */

static void add_spaces(hec_text *text, uint64_t *seed, int style) {
  static const char *const gaps[] = {"", " ", "  ", "\n", "\t "};
  if (style > 0)
    hec_text_add(text, style == 1 ? "" : style == 2 ? " " : gaps[hec_test_below(seed, 5)]);
}

HEC_TEST_LOOP(rows_in_every_spacing, 72) {
  uint64_t seed = (uint64_t)_i + 1;
  int style = _i % 4, columns = 1 + _i % 9, rows = _i % 3 == 0 ? 60000 / columns : (int)hec_test_below(&seed, 200);
  HEC_SCOPED(hec_text) text = {0};
  uint32_t *wanted = malloc(sizeof *wanted * (size_t)(rows * columns + 1));
  hec_text_add(&text, "[");
  for (int r = 0; r < rows; r++) {
    hec_text_add(&text, r > 0 ? "," : "");
    add_spaces(&text, &seed, style);
    hec_text_add(&text, "[");
    for (int c = 0; c < columns; c++) {
      uint32_t value = (uint32_t)(hec_test_random(&seed) >> (32 + hec_test_below(&seed, 32)));
      wanted[r * columns + c] = value;
      hec_text_add(&text, c > 0 ? "," : "");
      add_spaces(&text, &seed, c > 0 || style == 3 ? style : 0);
      hec_text_printf(&text, "%" PRIu32, value);
    }
    hec_text_add(&text, "]");
  }
  hec_text_add(&text, "] ");
  hec_source *source = NULL;
  hec_scan scan;
  hec_scan_matrix m = {.n_columns = -1};
  ck_ok(hec_source_open_memory(text.data, text.length, "rows", &source));
  ck_ok(hec_scan_begin(&scan, source));
  ck_ok(hec_scan_rows(&scan, &m, "numbers"));
  ck_assert_int_eq(m.n_rows, rows);
  if (rows > 0) {
    ck_assert_int_eq(m.n_columns, columns);
    ck_assert_mem_eq(m.values, wanted, sizeof *wanted * (size_t)(rows * columns));
  }
  int byte = 1;
  ck_assert(hec_scan_peek(&scan, &byte) == HEC_OK && byte == 0);
  hec_scan_end(&scan);
  free(m.values);
  free(wanted);
}

/* `n` rows of `columns` zeros: no more is kept than there may be, and the message names line and place. */
static void check_too_many(int64_t n, int64_t columns, const char *wanted) {
  HEC_SCOPED(hec_text) text = {0}, row = {0};
  hec_source *source = NULL;
  hec_scan scan;
  hec_scan_matrix m = {.n_columns = -1};
  for (int64_t c = 0; c < columns; c++)
    hec_text_add(&row, c == 0 ? "[0" : ",0");
  hec_text_add(&row, "]");
  for (int64_t r = 0; r < n; r++) {
    hec_text_add(&text, r == 0 ? "[" : ",");
    hec_text_add_bytes(&text, row.data, row.length);
  }
  hec_text_add(&text, "]");
  ck_ok(hec_source_open_memory(text.data, text.length, "rows", &source));
  ck_ok(hec_scan_begin(&scan, source));
  hec_status status = hec_scan_rows(&scan, &m, "numbers");
  if (wanted)
    ck_assert_str_eq(hec_last_error(), wanted);
  ck_assert_int_eq(status, wanted ? HEC_BAD_INPUT : HEC_OK);
  ck_assert_uint_le(m.capacity, 2 * HEC_SCAN_ROWS_MAX);
  hec_scan_end(&scan);
  free(m.values);
}

HEC_TEST(rows_are_bounded) {
  int64_t rows = HEC_SCAN_ROWS_MAX / 4096;
  check_too_many(1, HEC_SCAN_ROW_MAX, NULL);
  check_too_many(1, HEC_SCAN_ROW_MAX + 1, "rows:1: [0]: expected at most 1048576 numbers, found more");
  check_too_many(rows, 4096, NULL);
  check_too_many(rows + 1, 4096, "rows:1: expected at most 16777216 numbers, found more");
}

/* ---- router traces ---- */

enum { RANKS_MAX = 12, LAYERS_MAX = 4, STEPS_MAX = 3, MICRO_MAX = 3, EXPERTS_MAX = 9 };

typedef struct {
  int ranks, stages, layers, steps, micro[STEPS_MAX], experts, top_k; /* layers: of a stage */
  uint32_t counts[STEPS_MAX][MICRO_MAX][LAYERS_MAX * 2][RANKS_MAX][EXPERTS_MAX];
  uint64_t transitions[LAYERS_MAX * 2][EXPERTS_MAX][EXPERTS_MAX];
  hec_text file[RANKS_MAX];
} recording;

/* One rank's tokens of a micro-batch through its stage. */
static void record_tokens(recording *r, uint64_t *seed, int step, int micro, int rank) {
  uint32_t before[20][EXPERTS_MAX], now[20][EXPERTS_MAX];
  int n = (int)hec_test_below(seed, 20);
  int stage = rank / (r->ranks / r->stages), source = rank % (r->ranks / r->stages);
  for (int l = 0; l < r->layers; l++) {
    int layer = stage * r->layers + l;
    hec_text_printf(&r->file[rank],
                    "{\"step\": %d, \"stage\": \"pre_dispatch\", \"block\": \"decoder\", \"layer\": %d, \"rank\": %d, "
                    "\"num_tokens\": %d, \"topk\": %d, \"top_indices\": [",
                    step * 10, l, rank, n, r->top_k);
    for (int t = 0; t < n; t++) {
      hec_test_distinct(seed, r->experts, r->top_k, now[t]);
      for (int k = 0; k < r->top_k; k++) {
        hec_text_printf(&r->file[rank], "%s%u%s", k == 0 ? (t > 0 ? ", [" : "[") : ", ", now[t][k],
                        k == r->top_k - 1 ? "]" : "");
        r->counts[step][micro][layer][source][now[t][k]]++;
        for (int b = 0; l > 0 && b < r->top_k; b++)
          r->transitions[layer][before[t][b]][now[t][k]]++;
      }
    }
    hec_text_add(&r->file[rank], "]}\n");
    memcpy(before, now, sizeof now);
  }
}

static void make_recording(recording *r, uint64_t seed, int stages) {
  memset(r, 0, sizeof *r);
  r->stages = stages;
  r->ranks = stages * (1 + (int)hec_test_below(&seed, RANKS_MAX / (uint64_t)stages));
  r->layers = 1 + (int)hec_test_below(&seed, LAYERS_MAX);
  r->steps = 1 + (int)hec_test_below(&seed, STEPS_MAX);
  r->experts = 2 + (int)hec_test_below(&seed, EXPERTS_MAX - 1);
  r->top_k = 1 + (int)hec_test_below(&seed, (uint64_t)r->experts);
  for (int s = 0; s < r->steps; s++) {
    r->micro[s] = 1 + (int)hec_test_below(&seed, MICRO_MAX);
    for (int rank = 0; rank < r->ranks; rank++)
      for (int m = 0; m < r->micro[s]; m++)
        record_tokens(r, &seed, s, m, rank);
  }
}

/* Is some layer without tokens in a step? In the first it would be left out as dense: no case for this test. */
static bool has_empty_layer(const recording *r) {
  for (int s = 0; s < r->steps; s++)
    for (int l = 0; l < r->layers * r->stages; l++) {
      uint64_t sum = 0;
      for (int m = 0; m < r->micro[s]; m++)
        for (int source = 0; source < r->ranks; source++)
          for (int e = 0; e < r->experts; e++)
            sum += r->counts[s][m][l][source][e];
      if (sum == 0)
        return true;
    }
  return false;
}

static void check_record(const recording *r, const hec_load *load, int step, int micro, bool sum) {
  ck_assert(load->n_layers == r->layers * r->stages && load->n_sources == r->ranks / r->stages);
  for (int l = 0; l < load->n_layers; l++)
    for (int s = 0; s < load->n_sources; s++)
      for (int e = 0; e < r->experts; e++) {
        uint32_t wanted = 0;
        for (int m = sum ? 0 : micro; m < (sum ? r->micro[step] : micro + 1); m++)
          wanted += r->counts[step][m][l][s][e];
        ck_assert_uint_eq(hec_load_row(load, l, s)[e], wanted);
      }
}

/* Reads it with the files in another order than that of ranks. */
static void check_import(recording *r, const hec_import_options *options, uint64_t recent, uint64_t seed) {
  static char names[RANKS_MAX][64];
  hec_import_input inputs[RANKS_MAX];
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  bool more = true;
  int first = (int)hec_test_below(&seed, (uint64_t)r->ranks), step = 0, micro = 0;
  for (int i = 0; i < r->ranks; i++) {
    int rank = (first + i * (r->ranks % 5 == 0 ? 1 : 5)) % r->ranks;
    (void)snprintf(names[i], sizeof names[i], "d/router_trace_rank%d.jsonl", rank);
    inputs[i] = (hec_import_input){.path = names[i], .bytes = r->file[rank].data, .length = r->file[rank].length};
  }
  const hec_importer *format = hec_importer_find("megatron-router-trace");
  ck_ok(hec_import_begin(format, options, inputs, r->ranks, &job));
  job->recent_tokens = recent;
  for (;;) {
    ck_ok(hec_import_next(job, &record, &more));
    if (!more)
      break;
    ck_assert_int_eq(record.iter, step * 10);
    check_record(r, &record.load, step, micro, options->sum);
    micro = options->sum || micro + 1 == r->micro[step] ? 0 : micro + 1;
    step += micro == 0;
  }
  ck_assert_int_eq(step, r->steps);
  hec_trace_header header;
  hec_import_header(job, &header);
  ck_assert(header.n_experts == r->experts && header.top_k == r->top_k && header.counted == HEC_COUNTED_BEFORE_DROP);
  bool whole = r->stages == 1 && r->layers > 1 && !options->no_transitions; /* between stages none were seen */
  ck_assert_int_eq(header.transitions != NULL, whole);
  for (int l = 1; whole && l < r->layers; l++)
    for (int a = 0; a < r->experts; a++)
      for (int b = 0; b < r->experts; b++)
        ck_assert_uint_eq(header.transitions[((l - 1) * r->experts + a) * r->experts + b], r->transitions[l][a][b]);
}

HEC_TEST_LOOP(router_traces_at_random, 200) {
  static recording r;
  make_recording(&r, (uint64_t)_i + 7, 1 + _i % 2);
  if (!has_empty_layer(&r))
    for (int variant = 0; variant < 4; variant++) {
      hec_import_options options = {
          .experts = r.experts, .pp = r.stages, .last_step = -1, .sum = variant == 1, .no_transitions = variant == 2};
      check_import(&r, &options, variant == 3 ? 7 : 0, (uint64_t)_i);
    }
  for (int rank = 0; rank < r.ranks; rank++)
    hec_text_free(&r.file[rank]);
}

/* ---- steps ---- */

static const char count_lines[] = "step,layer,expert,count\n3,0,0,1\n3,0,1,2\n5,0,0,3\n5,0,1,4\n9,0,0,5\n9,0,1,6\n";

static hec_import *begin_counts(const hec_import_options *options, const hec_import_input *inputs, int n) {
  hec_import *job = NULL;
  ck_ok(hec_import_begin(hec_importer_find("csv-counts"), options, inputs, n, &job));
  return job;
}

HEC_TEST(steps_can_be_chosen) {
  hec_import_input input = {.path = "a.csv", .bytes = count_lines, .length = sizeof count_lines - 1};
  for (int from = 0; from <= 10; from++)
    for (int until = -1; until <= 10; until++) {
      hec_import_options options = {.top_k = 1, .first_step = from, .last_step = until, .gaps = true};
      HEC_OPENED(hec_import) *job = begin_counts(&options, &input, 1);
      hec_import_record record;
      hec_status status = HEC_OK;
      bool more = true;
      int steps[] = {3, 5, 9}, n = 0;
      for (int i = 0; i < 3; i++) {
        if (steps[i] < from || (until >= 0 && steps[i] > until))
          continue;
        ck_assert(hec_import_next(job, &record, &more) == HEC_OK && more);
        ck_assert(record.iter == steps[i] && record.load.counts[0] == (uint32_t)(2 * i + 1));
        n++;
      }
      status = hec_import_next(job, &record, &more);
      ck_assert(!more && status == (n > 0 ? HEC_OK : HEC_BAD_INPUT));
    }
}

/* Files of one rank in the order of numbers in their names; ranks that are numbered anew. */
HEC_TEST(names_are_ordered_by_numbers) {
  static const char *const names[] = {"x/rank10_t9.csv", "x/rank9_t10.csv", "x/rank9_t9.csv", "x/rank10_t010.csv"};
  static const uint32_t wanted[2][2] = {{3, 1}, {2, 4}}; /* [step][source] of the count of expert 0 */
  char text[4][64];
  hec_import_input inputs[4];
  for (int i = 0; i < 4; i++) {
    (void)snprintf(text[i], sizeof text[i], "layer,expert,count\n0,0,%d\n0,1,0\n", i + 1);
    inputs[i] = (hec_import_input){.path = names[i], .bytes = text[i], .length = strlen(text[i])};
  }
  hec_import_options options = {.top_k = 1, .last_step = -1, .renumber = true};
  HEC_OPENED(hec_import) *job = begin_counts(&options, inputs, 4);
  hec_import_record record;
  bool more = true;
  for (int step = 0; step < 2; step++) {
    ck_assert_msg(hec_import_next(job, &record, &more) == HEC_OK && more, "%s", hec_last_error());
    for (int s = 0; s < 2; s++)
      ck_assert_uint_eq(hec_load_row(&record.load, 0, s)[0], wanted[step][s]);
  }
  ck_assert(hec_import_next(job, &record, &more) == HEC_OK && !more);
}

/* ---- steps that are left out ---- */

enum { REQUESTS_MAX = 7, REQUEST_LAYERS = 3, REQUEST_EXPERTS = 5, REQUEST_TOP_K = 2, TOKENS_MAX = 6 };

static void make_request(hec_text *file, uint64_t *seed, int n, uint8_t ids[][REQUEST_LAYERS][REQUEST_TOP_K]) {
  char shape[32];
  (void)snprintf(shape, sizeof shape, "(%d, %d, %d)", n, REQUEST_LAYERS, REQUEST_TOP_K);
  hec_test_npy_header(file, "|u1", shape);
  for (int t = 0; t < n; t++)
    for (int l = 0; l < REQUEST_LAYERS; l++) {
      ids[t][l][0] = (uint8_t)(1 + hec_test_below(seed, REQUEST_EXPERTS - 1));
      ids[t][l][1] = (uint8_t)hec_test_below(seed, ids[t][l][0]);
    }
  hec_text_add_bytes(file, (const char *)ids, (size_t)n * sizeof ids[0]);
}

/* Transitions are those of the records alone: neither of steps before --from nor of a last one that lacks sources. */
HEC_TEST_LOOP(transitions_are_of_what_is_written, 60) {
  static uint8_t ids[REQUESTS_MAX][TOKENS_MAX][REQUEST_LAYERS][REQUEST_TOP_K];
  uint64_t seed = (uint64_t)_i + 3, wanted[REQUEST_LAYERS - 1][REQUEST_EXPERTS][REQUEST_EXPERTS] = {{{0}}};
  int ranks = 1 + _i % 3, n_steps = REQUESTS_MAX / ranks, from = (int)hec_test_below(&seed, (uint64_t)n_steps);
  int until = _i % 2 ? -1 : from + (int)hec_test_below(&seed, (uint64_t)(n_steps - from));
  hec_text file[REQUESTS_MAX] = {{0}};
  char names[REQUESTS_MAX][24];
  hec_import_input inputs[REQUESTS_MAX];
  for (int r = 0; r < REQUESTS_MAX; r++) {
    int n = 1 + (int)hec_test_below(&seed, TOKENS_MAX), step = r / ranks;
    make_request(&file[r], &seed, n, ids[r]);
    (void)snprintf(names[r], sizeof names[r], "r%d.npy", r);
    inputs[r] = (hec_import_input){.path = names[r], .bytes = file[r].data, .length = file[r].length};
    bool kept = step >= from && step < n_steps && (until < 0 || step <= until);
    for (int i = 0; kept && i < n * (REQUEST_LAYERS - 1) * REQUEST_TOP_K * REQUEST_TOP_K; i++) {
      int a = i % 2, b = i / 2 % 2, l = i / 4 % (REQUEST_LAYERS - 1), t = i / 4 / (REQUEST_LAYERS - 1);
      wanted[l][ids[r][t][l][a]][ids[r][t][l + 1][b]]++;
    }
  }
  hec_import_options options = {.experts = REQUEST_EXPERTS,
                                .ranks = ranks,
                                .first_step = from,
                                .last_step = until,
                                .axes = "tokens,layers,top_k"};
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  hec_trace_header header;
  ck_ok(hec_import_begin(hec_importer_find("npy-routed-experts"), &options, inputs, REQUESTS_MAX, &job));
  for (bool more = true; more;)
    ck_ok(hec_import_next(job, &record, &more));
  hec_import_header(job, &header);
  ck_assert_msg(header.transitions != NULL, "%s", header.notes);
  ck_assert(header.transitions_first == from && header.transitions_last == (until < 0 ? n_steps - 1 : until));
  ck_assert_mem_eq(header.transitions, wanted, sizeof wanted);
  for (int r = 0; r < REQUESTS_MAX; r++)
    hec_text_free(&file[r]);
}
