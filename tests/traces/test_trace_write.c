/* The writer: what is written reads back the same, files are whole or absent, failures are said. */
#include "tests/support/test.h"
#include "traces/trace.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static void make_folder(void) {
  (void)snprintf(folder, sizeof folder, "/tmp/hecate-trace-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static const char *in_folder(const char *name) {
  static char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int count_files(void) {
  DIR *listing = opendir(folder);
  int n = 0;
  for (struct dirent *entry = readdir(listing); entry; entry = readdir(listing))
    n += entry->d_name[0] != '.';
  (void)closedir(listing);
  return n;
}

static hec_trace_header header_of(int32_t layers, int32_t sources, int32_t experts, bool per_source) {
  return (hec_trace_header){.name = "a \"name\"\n\xc3\xa9",
                            .notes = "n",
                            .phase = HEC_PHASE_TRAIN,
                            .n_layers = layers,
                            .n_experts = experts,
                            .top_k = 1,
                            .n_sources = sources,
                            .per_source = per_source,
                            .synthetic = "{\"seed\":1,\n \"generator\":\"x\"}",
                            .shape = "{\"d_model\":64}",
                            .ranks = 4,
                            .devices_per_node = 2,
                            .counted = HEC_COUNTED_BEFORE_DROP};
}

static void fill_random(hec_load *load, uint64_t seed) {
  int64_t n = (int64_t)load->n_layers * load->n_sources * load->n_experts;
  for (int64_t i = 0; i < n; i++) { /* every length of number */
    uint64_t random = hec_test_random(&seed);
    load->counts[i] = (uint32_t)(random >> (32 + random % 33 * 31 / 32));
  }
}

HEC_TEST(round_trip) {
  make_folder();
  static const char *const names[] = {"a.jsonl", "a.jsonl.gz"};
  static uint32_t counts[3 * 4 * 50];
  for (int form = 0; form < 4; form++) {
    bool per_source = form & 1;
    const char *path = in_folder(names[form >> 1]);
    hec_trace_header header = header_of(3, per_source ? 4 : 1, 50, per_source);
    hec_load load = {3, header.n_sources, 50, counts};
    hec_trace_writer *writer = NULL;
    ck_ok(hec_trace_create(path, &header, &writer));
    for (int i = 0; i < 20; i++) {
      fill_random(&load, (uint64_t)i);
      ck_ok(hec_trace_write(writer, i / 2, i % 3 == 0 ? "label" : NULL, &load));
    }
    ck_ok(hec_trace_finish(writer));
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    ck_ok(hec_trace_open(path, &reader));
    const hec_trace_header *h = hec_trace_header_of(reader);
    ck_assert_str_eq(h->name, header.name);
    ck_assert_str_eq(h->synthetic, "{\"seed\":1,  \"generator\":\"x\"}");
    ck_assert_str_eq(h->shape, header.shape);
    ck_assert_str_eq(h->unit, "token-expert assignments");
    ck_assert(h->ranks == 4 && h->devices_per_node == 2 && h->counted == HEC_COUNTED_BEFORE_DROP);
    ck_assert(h->per_source == per_source && h->phase == HEC_PHASE_TRAIN);
    const hec_trace_record *record = NULL;
    for (int i = 0; i < 20; i++) {
      ck_ok(hec_trace_next(reader, &record));
      fill_random(&load, (uint64_t)i);
      ck_assert_int_eq(record->iter, i / 2);
      ck_assert_str_eq(record->label, i % 3 == 0 ? "label" : "");
      ck_assert_mem_eq(record->load.counts, counts, sizeof(uint32_t) * 150 * (size_t)header.n_sources);
    }
    ck_ok(hec_trace_next(reader, &record));
    ck_assert_ptr_null(record);
  }
  ck_assert_int_eq(count_files(), 2);
  (void)remove(in_folder("a.jsonl"));
  (void)remove(in_folder("a.jsonl.gz"));
  ck_assert_int_eq(rmdir(folder), 0);
}

/* Every power of ten and its neighbours, and what the reader makes of them. */
HEC_TEST(numbers_of_every_length) {
  make_folder();
  uint32_t counts[32];
  int n = 0;
  for (uint64_t power = 1; power <= UINT32_MAX; power *= 10) {
    counts[n++] = (uint32_t)(power - 1);
    counts[n++] = (uint32_t)power;
    counts[n++] = (uint32_t)(power + power / 7);
  }
  counts[n++] = UINT32_MAX;
  hec_trace_header header = header_of(1, 1, n, false);
  hec_load load = {1, 1, n, counts};
  hec_trace_writer *writer = NULL;
  const char *path = in_folder("n");
  ck_ok(hec_trace_create(path, &header, &writer));
  ck_ok(hec_trace_write(writer, 5, NULL, &load));
  ck_ok(hec_trace_finish(writer));
  FILE *file = fopen(path, "rb");
  char line[2048], wanted[2048];
  ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
  ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
  (void)fclose(file);
  int at = snprintf(wanted, sizeof wanted, "{\"iter\":5,\"layers\":[[");
  for (int i = 0; i < n; i++)
    at += snprintf(wanted + at, sizeof wanted - (size_t)at, i > 0 ? ",%u" : "%u", counts[i]);
  (void)snprintf(wanted + at, sizeof wanted - (size_t)at, "]]}\n");
  ck_assert_str_eq(line, wanted);
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  ck_ok(hec_trace_open(path, &reader));
  ck_ok(hec_trace_next(reader, &record));
  ck_assert_mem_eq(record->load.counts, counts, sizeof(uint32_t) * (size_t)n);
  (void)remove(path);
  ck_assert_int_eq(rmdir(folder), 0);
}

HEC_TEST(abandoned_leaves_nothing) {
  make_folder();
  const char *path = in_folder("kept.gz");
  FILE *file = fopen(path, "wb");
  (void)fputs("old", file);
  (void)fclose(file);
  hec_trace_header header = header_of(1, 1, 2, false);
  hec_load load = {1, 1, 2, (uint32_t[]){1, 2}};
  hec_trace_writer *writer = NULL;
  ck_ok(hec_trace_create(path, &header, &writer));
  ck_ok(hec_trace_write(writer, 1, NULL, &load));
  hec_trace_abandon(writer);
  ck_assert_int_eq(count_files(), 1);
  char old[8] = {0};
  file = fopen(path, "rb");
  ck_assert_uint_eq(fread(old, 1, sizeof old, file), 3);
  (void)fclose(file);
  ck_assert_str_eq(old, "old");
  (void)remove(path);
  ck_assert_int_eq(rmdir(folder), 0);
}

HEC_TEST(failures_are_said) {
  hec_trace_header header = header_of(1, 1, 2, false);
  hec_load load = {1, 1, 2, (uint32_t[]){1, 2}};
  hec_trace_writer *writer = NULL;
  ck_assert_int_eq(hec_trace_create("/nonexistent/x", &header, &writer), HEC_FAILED);
  ck_assert_str_eq(hec_last_error(), "/nonexistent/x: cannot be written: No such file or directory");
  ck_assert_ptr_null(writer);
  ck_assert_int_eq(hec_trace_create("/", &header, &writer), HEC_BAD_INPUT);
  ck_ok(hec_trace_create("/dev/full", &header, &writer));
  ck_ok(hec_trace_write(writer, 1, NULL, &load)); /* still in the block */
  ck_assert_int_eq(hec_trace_finish(writer), HEC_FAILED);
  ck_assert_str_eq(hec_last_error(), "/dev/full: cannot be written: No space left on device");
  ck_ok(hec_trace_create("/dev/full", &header, &writer));
  hec_status status = HEC_OK;
  for (int i = 0; i < 100000 && status == HEC_OK; i++) /* the block fills and cannot be emptied */
    status = hec_trace_write(writer, i, NULL, &load);
  ck_assert_int_eq(status, HEC_FAILED);
  hec_trace_abandon(writer);
}
