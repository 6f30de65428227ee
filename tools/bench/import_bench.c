/* Each format has a function that prints record i of one rank. Shapes are as in a large model (58 layers, 256 experts,
 * top-8) or as the recorder has them. Numbers come from a generator without state between files. What is timed is
 * reading, putting together and printing again. */

#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "tools/bench/bench.h"
#include "traces/import/import.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LAYERS = 58, EXPERTS = 256, TOP_K = 8, TOKENS = 1024, RANKS = 32, SLOTS = 288 };

typedef struct {
  hec_text text; /* of one record, or of several that go on alike */
  uint64_t random;
} generator;

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint32_t draw(generator *g, uint32_t below) {
  uint64_t z = (g->random += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) % below);
}

/* [1, 2, 3] */
static void add_list(generator *g, int n, uint32_t below) {
  for (int i = 0; i < n; i++)
    hec_text_printf(&g->text, "%s%" PRIu32, i == 0 ? "[" : ", ", draw(g, below));
  hec_text_add(&g->text, "]");
}

static void add_lists(generator *g, int rows, int n, uint32_t below) {
  for (int i = 0; i < rows; i++) {
    hec_text_add(&g->text, i == 0 ? "[" : ", ");
    add_list(g, n, below);
  }
  hec_text_add(&g->text, "]");
}

/* Experts of a token, all different: one of every EXPERTS / TOP_K. */
static uint32_t draw_expert(generator *g, int k) {
  return (uint32_t)k * (EXPERTS / TOP_K) + draw(g, EXPERTS / TOP_K);
}

static void router_trace(generator *g, int64_t i) {
  hec_text_printf(&g->text,
                  "{\"step\": %" PRId64
                  ", \"stage\": \"pre_dispatch\", \"block\": \"decoder\", \"layer\": %d, \"rank\": 0, "
                  "\"num_tokens\": %d, \"topk\": %d, \"top_indices\": ",
                  i / LAYERS, (int)(i % LAYERS), TOKENS, TOP_K);
  for (int t = 0; t < TOKENS; t++)
    for (int k = 0; k < TOP_K; k++)
      hec_text_printf(&g->text, "%s%" PRIu32, k > 0 ? ", " : t > 0 ? "], [" : "[[", draw_expert(g, k));
  hec_text_add(&g->text, "]]}\n");
}

static void tokens_per_expert(generator *g, int64_t i) {
  hec_text_printf(&g->text, "{\"iter\": %" PRId64 ", \"block\": \"decoder\", \"layer\": %d, \"tpe\": ", i / LAYERS,
                  (int)(i % LAYERS));
  add_lists(g, 4, 8, 4096);
  hec_text_add(&g->text, "}\n");
}

static void vllm(generator *g, int64_t i) {
  if (i == 0)
    hec_text_printf(&g->text,
                    "{\"record_type\": \"eplb_load_meta\", \"version\": 1, \"model\": \"m\", \"num_ranks\": %d, "
                    "\"num_layers\": %d, \"num_redundant_experts\": %d}\n",
                    RANKS, LAYERS, SLOTS - EXPERTS);
  hec_text_printf(&g->text,
                  "{\"record_type\": \"eplb_load_stats\", \"version\": 1, \"step\": %" PRId64 ", \"expert_load\": ", i);
  add_lists(g, LAYERS, SLOTS, 4096);
  hec_text_add(&g->text, ", \"p2l_map\": ");
  for (int l = 0; l < LAYERS; l++)
    for (int s = 0; s < SLOTS; s++)
      hec_text_printf(&g->text, "%s%d", s > 0 ? ", " : l > 0 ? "], [" : "[[", s % EXPERTS);
  hec_text_add(&g->text, "]]}\n");
}

static void logical_count(generator *g, int64_t i) {
  hec_text_add(&g->text, i == 0 ? "{\"logical_count\": [" : ", ");
  add_lists(g, LAYERS, EXPERTS, 100000);
}

/* (tokens, layers, top_k) of uint16 behind a header of 128 bytes. */
static void add_npy(generator *g, uint64_t tokens) {
  char header[129];
  int n = snprintf(header, sizeof header,
                   "\x93NUMPY\1%c\x76%c{'descr': '<u2', 'fortran_order': False, 'shape': (%" PRIu64 ", %d, %d), }", 0,
                   0, tokens, LAYERS, TOP_K);
  memset(header + n, ' ', 128 - (size_t)n);
  header[127] = '\n';
  hec_text_add_bytes(&g->text, header, 128);
  for (uint64_t i = 0; i < tokens * LAYERS * TOP_K; i++) {
    char id[2] = {(char)draw_expert(g, (int)(i % TOP_K)), 0};
    hec_text_add_bytes(&g->text, id, 2);
  }
}

/* The whole file: one request is one file. */
static void npy(generator *g, uint64_t bytes) {
  add_npy(g, bytes / (UINT64_C(2) * LAYERS * TOP_K) + 1);
}

static void response(generator *g, int64_t i) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  generator request = {.random = (uint64_t)i};
  add_npy(&request, UINT64_C(3) * TOKENS); /* bytes: a multiple of 3 but for the header's 128 */
  hec_text_add(&g->text, "{\"meta_info\": {\"routed_experts\": \"");
  const unsigned char *p = (const unsigned char *)request.text.data;
  size_t n = request.text.length;
  for (size_t k = 0; k < n; k += 3) {
    uint32_t bits = (uint32_t)p[k] << 16 | (k + 1 < n ? (uint32_t)p[k + 1] << 8 : 0) | (k + 2 < n ? p[k + 2] : 0);
    char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], k + 1 < n ? digits[bits >> 6 & 63] : '=',
                    k + 2 < n ? digits[bits & 63] : '='};
    hec_text_add_bytes(&g->text, four, 4);
  }
  hec_text_add(&g->text, "\"}}\n");
  hec_text_free(&request.text);
}

static void harmoeny(generator *g, int64_t i) {
  if (i == 0)
    hec_text_add(&g->text,
                 "iteration,latency (ms),comp latency (ms),total number of tokens sent,expert distribution\n");
  hec_text_printf(&g->text, "%" PRId64 ",32.859134674072266,20.40230369567871,8192,\"", i);
  add_list(g, EXPERTS, 4096);
  hec_text_add(&g->text, "\"\n");
}

static void counts(generator *g, int64_t i) {
  if (i == 0)
    hec_text_add(&g->text, "step,layer,expert,count\n");
  for (int l = 0; l < LAYERS; l++)
    for (int e = 0; e < EXPERTS; e++)
      hec_text_printf(&g->text, "%" PRId64 ",%d,%d,%" PRIu32 "\n", i, l, e, draw(g, 4096));
}

static void rank_loads(generator *g, int64_t i) {
  if (i == 0)
    hec_text_add(&g->text, "rank,method,model_name,layer,iter,token_num\n");
  for (int l = 0; l < LAYERS; l++)
    for (int r = 0; r < RANKS; r++)
      hec_text_printf(&g->text, "%d,FSDP,mixtral-8x7b-e16k4,%d,%" PRId64 ",%" PRIu32 "\n", r, l, i, draw(g, 100000));
}

/* The whole file: its header names every tensor. 5 % of the bytes are header. */
static void safetensors(generator *g, uint64_t bytes) {
  HEC_SCOPED(hec_text) header = {0};
  uint64_t n = (bytes / (UINT64_C(8) * EXPERTS * LAYERS) + 1) * LAYERS;
  for (uint64_t t = 0; t < n; t++)
    hec_text_printf(
        &header, "%s\"%" PRIu64 "_%d\":{\"dtype\":\"I64\",\"shape\":[%d],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        t == 0 ? "{" : ",", t / LAYERS, (int)(t % LAYERS), EXPERTS, t * 8 * EXPERTS, (t + 1) * 8 * EXPERTS);
  hec_text_add(&header, "}");
  for (int i = 0; i < 8; i++) {
    char byte = (char)(header.length >> (8 * i) & 0xff);
    hec_text_add_bytes(&g->text, &byte, 1);
  }
  hec_text_add_bytes(&g->text, header.data, header.length);
  for (uint64_t i = 0; i < n * EXPERTS; i++) {
    uint32_t count = draw(g, 4096);
    char bytes_of[8] = {(char)(count & 0xff), (char)(count >> 8), 0, 0, 0, 0, 0, 0};
    hec_text_add_bytes(&g->text, bytes_of, 8);
  }
}

static const struct {
  const hec_importer *format;
  void (*add)(generator *g, int64_t i);          /* a record; NULL: */
  void (*make)(generator *g, uint64_t at_least); /* all of the file */
  const char *end;
  int per_step; /* records */
  hec_import_options say;
} files[] = {
    {&hec_importer_megatron_router_trace, router_trace, NULL, "", LAYERS, {.experts = EXPERTS}},
    {&hec_importer_megatron_tokens_per_expert, tokens_per_expert, NULL, "", LAYERS, {.top_k = TOP_K}},
    {&hec_importer_vllm_eplb, vllm, NULL, "", 1, {.top_k = TOP_K}},
    {&hec_importer_eplb_json, logical_count, NULL, "]}\n", 1, {.top_k = TOP_K}},
    {&hec_importer_trtllm, NULL, safetensors, "", 1, {.experts = EXPERTS, .top_k = TOP_K}},
    {&hec_importer_npy_routed_experts, NULL, npy, "", 1, {.experts = EXPERTS}},
    {&hec_importer_json_routed_experts, response, NULL, "", 1, {.experts = EXPERTS}},
    {&hec_importer_harmoeny, harmoeny, NULL, "", 1, {.top_k = TOP_K}},
    {&hec_importer_csv_counts, counts, NULL, "", 1, {.top_k = TOP_K}},
    {&hec_importer_csv_ranks, rank_loads, NULL, "", 1, {.top_k = TOP_K}},
};

static size_t find(const hec_importer *format) {
  size_t i = 0, n = sizeof files / sizeof *files;
  while (i < n && files[i].format != format)
    i++;
  HEC_ASSERT(i < n);
  return i;
}

static bool write_text(FILE *file, hec_text *text, uint64_t *written) {
  bool good = text->length == 0 || fwrite(text->data, 1, text->length, file) == text->length;
  *written += text->length;
  text->length = 0;
  return good;
}

hec_status hec_import_bench_make(const hec_importer *format, const char *path, uint64_t bytes) {
  size_t f = find(format);
  generator g = {.random = 1};
  uint64_t written = 0, before = 1;
  FILE *file = hec_file_open(path, "wb");
  bool good = file != NULL;
  if (!files[f].add)
    files[f].make(&g, bytes);
  for (int64_t i = 0; good && (written < bytes || i % files[f].per_step != 0) && written != before;
       i++) { /* who adds nothing more is done */
    before = written;
    if (files[f].add)
      files[f].add(&g, i);
    good = write_text(file, &g.text, &written);
  }
  hec_text_add(&g.text, files[f].end);
  good = good && write_text(file, &g.text, &written);
  hec_text_free(&g.text);
  good = (!file || fclose(file) == 0) && good;
  return good ? HEC_OK : hec_fail(HEC_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static uint64_t length_of(const char *path) {
  FILE *file = hec_file_open(path, "rb");
  long n = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
  if (file)
    (void)fclose(file);
  return n > 0 ? (uint64_t)n : 0;
}

hec_status hec_import_bench_run(const hec_importer *format, const char *path, hec_import_bench *result) {
  hec_import_options options = files[find(format)].say;
  hec_import_input input = {.path = path};
  hec_import_result written = {.n_records = 0};
  HEC_OPENED(hec_import) *job = NULL;
  struct rusage usage;
  options.last_step = -1;
  double begin_s = hec_bench_now_s();
  HEC_TRY(hec_import_begin(format, &options, &input, 1, &job));
  hec_status status = hec_import_write(job, "/dev/null", &written);
  hec_text_free(&written.read);
  result->seconds = hec_bench_now_s() - begin_s;
  result->records = (uint64_t)written.n_records;
  result->bytes = length_of(path);
  HEC_ASSERT(getrusage(RUSAGE_SELF, &usage) == 0);
  result->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                  1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  result->peak_bytes = (int64_t)usage.ru_maxrss * 1024;
  return status;
}
