/* The header's transitions: both forms of a row, in any place of the header; what is refused; written and read back; what
 * the generator draws. */
#include "tests/support/test.h"
#include "traces/synth.h"
#include "traces/trace.h"
#include "traces/trace_info.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define SIZES "\"format\":\"hecate-trace\",\"version\":1,\"layers\":3,\"experts\":2,\"top_k\":1"
#define RECORD "{\"iter\":0,\"layers\":[[1,2],[2,1],[3,0]]}"

static hec_trace_reader *open_text(const char *text) {
  hec_trace_reader *reader = NULL;
  ck_assert_msg(hec_trace_open_memory(text, strlen(text), "t", &reader) == HEC_OK, "%s: %s", text, hec_last_error());
  return reader;
}

HEC_TEST(forms_agree) {
  static const char *const forms[] = {
      "{" SIZES ",\"transitions\":[[[1,0],[2,30]],[[0,0],[0,4]]]}\n" RECORD,
      "{\"transitions\":[[[1,0],[2,30]],[[0,0],[0,4]]]," SIZES "}\n" RECORD,
      "{\"transitions\":[[{\"0\":1},{\"1\":30,\"0\":2}],[{},{\"1\":4}]]," SIZES "}\n" RECORD,
      "{" SIZES ",\"transitions\":\n [ [{\"0\":1,\"1\":0},\n[2,30]] , [{ }, { \"1\" : 4 }]]\n}\n" RECORD,
      "{" SIZES ",\"transitions\":[[[1,0],[2,30]],[{},{\"1\":4}]],\"iterations\":[" RECORD "]}"};
  static const uint64_t counts[8] = {1, 0, 2, 30, 0, 0, 0, 4};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    HEC_OPENED(hec_trace_reader) *reader = open_text(forms[i]);
    const hec_trace_header *header = hec_trace_header_of(reader);
    const hec_trace_record *record = NULL;
    ck_assert(header->transitions && !header->transitions_over);
    ck_assert(memcmp(header->transitions, counts, sizeof counts) == 0);
    for (int round = 0; round < 2; round++) {
      ck_ok(hec_trace_next(reader, &record));
      ck_ok(hec_trace_rewind(reader));
    }
  }
  static const char *const without[] = {"{" SIZES "}\n" RECORD, "{" SIZES ",\"transitions\":null}\n" RECORD,
                                        "{\"transitions\":null," SIZES ",\"transitions_over\":[1,2]}\n" RECORD,
                                        ("{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":2,"
                                         "\"top_k\":1,\"transitions\":[]}\n{\"iter\":0,\"layers\":[[1,2]]}")};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
    HEC_OPENED(hec_trace_reader) *reader = open_text(without[i]);
    ck_assert_ptr_null(hec_trace_header_of(reader)->transitions);
    ck_assert(!hec_trace_header_of(reader)->transitions_over);
  }
}

static void refused(const char *text, const char *message) {
  text = hec_test_quoted(text);
  message = hec_test_quoted(message);
  hec_trace_reader *reader = NULL;
  ck_assert_msg(hec_trace_open_memory(text, strlen(text), "t", &reader) == HEC_BAD_INPUT, "%s", text);
  ck_assert_ptr_null(reader);
  ck_assert_str_eq(hec_last_error(), message);
}

HEC_TEST(errors) {
#define AFTER(value) "{" SIZES ",\n\"transitions\":" value "}\n" RECORD
#define BEFORE(value) "{\n\"transitions\":" value "," SIZES "}\n" RECORD
  refused(AFTER("7"), "t:2: transitions: expected an array of layers but the last, found 7");
  refused(AFTER("[1,2]"), "t:2: transitions[0]: expected an array of experts, found 1");
  refused(AFTER("[[1,2],[3,4]]"),
          "t:2: transitions[0][0]: expected an array of counts, or an object of those above 0, found 1");
  refused(AFTER("[]"), "t:2: transitions: expected 2 layers (all but the last), found 0");
  refused(AFTER("[[[1,0],[2,30]]]"), "t:2: transitions: expected 2 layers (all but the last), found 1");
  refused(AFTER("[[[1,0],[2,3]],[[0,0],[0,4]],[],[]]"),
          "t:2: transitions: expected 2 layers (all but the last), found 4");
  refused(AFTER("[[[1,0]],[[0,0],[0,4]]]"), "t:2: transitions[0]: expected 2 experts, found 1");
  refused(AFTER("[[[1,0],[2,3],[4,5]],[[0,0],[0,4]]]"), "t:2: transitions[0]: expected 2 experts, found 3");
  refused(AFTER("[[[1,0],[2]],[[0,0],[0,4]]]"), "t:2: transitions[0][1]: expected 2 counts, found 1");
  refused(AFTER("[[[1,0],[2,3]],[[0,0,9],[0,4]]]"), "t:2: transitions[1][0]: expected 2 counts, found 3");
  refused(AFTER("[[[1,0],[2,-3]],[[0,0],[0,4]]]"),
          "t:2: transitions[0][1][1]: expected a whole number from 0 to 9007199254740988, found -3");
  refused(AFTER("[[[1,0],[2,1.5]],[[0,0],[0,4]]]"),
          "t:2: transitions[0][1][1]: expected a whole number from 0 to 9007199254740988, found 1.5");
  refused(AFTER("[[[9007199254740991,0],[0,1]],[[0,0],[0,4]]]"), "t:2: transitions[0][1][1]: expected 0, found 1");
  refused(AFTER("[[{`2`:1},[2,3]],[[0,0],[0,4]]]"),
          "t:2: transitions[0][0]: expected keys that are experts from 0 to 1, found `2`");
  refused(AFTER("[[{`01`:1},[2,3]],[[0,0],[0,4]]]"),
          "t:2: transitions[0][0]: expected keys that are experts from 0 to 1, found `01`");
  refused(AFTER("[[{`x`:1},[2,3]],[[0,0],[0,4]]]"),
          "t:2: transitions[0][0]: expected keys that are experts from 0 to 1, found `x`");
  refused(AFTER("[[{`1`:`1`},[2,3]],[[0,0],[0,4]]]"),
          "t:2: transitions[0][0]: expected a whole number from 0 to 9007199254740991, found `1` (key `1`)");
  refused(AFTER("[[{`1`:1,`1`:2},[2,3]],[[0,0],[0,4]]]"), "t:2: transitions: expected every expert once in a row, "
                                                          "found two counts from expert 0 to expert 1 behind layer 0");
  refused(AFTER("[[[1,0],[2,3]],[[0,0],[0,4]]],`transitions`:[]"),
          "t:2: transitions: expected this key once, found a second one");
  refused(BEFORE("[[[1,0],[2,3]]]"), "t:2: transitions: expected 2 x 2 (layers but the last x experts), found 1 x 2");
  refused(BEFORE("[[[1]],[[2]]]"), "t:2: transitions: expected 2 x 2 (layers but the last x experts), found 2 x 1");
  refused(BEFORE("[[{`7`:1},{}],[{},{}]]"),
          "t:2: transitions: expected 2 x 2 (layers but the last x experts), found 2 x 8");
  refused(BEFORE("[]"), "t:2: transitions: expected 2 x 2 (layers but the last x experts), found 0 x 0");
  refused(AFTER("null,`transitions_over`:[2,1]"),
          "t:2: transitions_over: expected a whole number from 2 to 9007199254740991, found 1");
  refused(AFTER("null,`transitions_over`:3"), "t:2: transitions_over: expected '[', found 3");
  refused("{`format`:`hecate-trace`,`version`:1,`layers`:2,`experts`:8192,`top_k`:1,`transitions`:[[[",
          "t:1: transitions[0][0][0]: expected a whole number from 0 to 9007199254740991, found end of file");
#undef AFTER
#undef BEFORE
}

/* Claims of sizes cost nothing before the lists are there; then there is a limit. */
HEC_TEST(has_a_limit) {
  static char text[1 << 17];
  int n = snprintf(text, sizeof text, "%s",
                   "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":2,\"experts\":8192,\"top_k\":1,"
                   "\"transitions\":[[");
  for (int e = 0; e < 8192; e++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s{}", e > 0 ? "," : "");
  (void)snprintf(text + n, sizeof text - (size_t)n, "]]}\n");
  refused(text, "t:1: transitions: expected at most 33554432 counts (layers but the last x experts x experts), found 1 "
                "x 8192 x 8192");
}

/* Any length of number, rows full, thin and empty: the same back, and thin rows are short. */
HEC_TEST(round_trip) {
  enum { LAYERS = 4, EXPERTS = 40, CELLS = (LAYERS - 1) * EXPERTS * EXPERTS };
  static uint64_t transitions[CELLS];
  static uint32_t counts[LAYERS * EXPERTS];
  char path[] = "/tmp/hecate-transitions-XXXXXX";
  uint64_t seed = 6;
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  (void)close(file);
  hec_load load = {LAYERS, 1, EXPERTS, counts};
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < CELLS; i++) {
      uint64_t value = hec_test_random(&seed) >> (20 + hec_test_below(&seed, 40));
      transitions[i] = hec_test_below(&seed, 8) < (uint64_t)(i / EXPERTS % 9) ? value : 0;
    }
    hec_trace_header header = {.n_layers = LAYERS,
                               .n_experts = EXPERTS,
                               .top_k = 1,
                               .n_sources = 1,
                               .transitions = transitions,
                               .transitions_over = round % 2,
                               .transitions_first = round,
                               .transitions_last = 2 * round};
    hec_trace_writer *writer = NULL;
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    ck_ok(hec_trace_create(path, &header, &writer));
    ck_ok(hec_trace_write(writer, 0, NULL, &load));
    ck_ok(hec_trace_finish(writer));
    ck_ok(hec_trace_open(path, &reader));
    const hec_trace_header *h = hec_trace_header_of(reader);
    ck_assert(memcmp(h->transitions, transitions, sizeof transitions) == 0);
    ck_assert(h->transitions_over == (round % 2 == 1));
    ck_assert(!h->transitions_over || (h->transitions_first == round && h->transitions_last == 2 * round));
  }
  ck_assert_int_eq(unlink(path), 0);
}

static uint64_t row_sum(const hec_load *load, int32_t layer, int32_t expert) {
  uint64_t sum = 0;
  for (int32_t s = 0; s < load->n_sources; s++)
    sum += hec_load_row(load, layer, s)[expert];
  return sum;
}

static double affinity_of(const uint64_t *counts, int32_t layers, int32_t experts) {
  uint64_t copy[64];
  memcpy(copy, counts, (size_t)(layers - 1) * (size_t)(experts * experts) * sizeof *copy);
  return hec_trace_affinity(&(hec_trace_header){.n_layers = layers, .n_experts = experts, .transitions = copy});
}

/* By hand: a product of margins has none; a permutation of E even experts has 1 - 1/E; pairs of layers weigh by counts. */
HEC_TEST(affinity_is_off_independence) {
  static const uint64_t product[] = {2, 4, 6, 12}, permutation[] = {0, 5, 0, 0, 0, 5, 5, 0, 0};
  static const uint64_t both[] = {10, 10, 10, 10, 0, 60, 60, 0}, none[4] = {0};
  ck_assert_double_eq_tol(affinity_of(product, 2, 2), 0, 1e-15);
  ck_assert_double_eq_tol(affinity_of(permutation, 2, 3), 2.0 / 3, 1e-15);
  ck_assert_double_eq_tol(affinity_of(both, 3, 2), 0.5 * 120 / 160, 1e-15);
  ck_assert(isnan(affinity_of(none, 2, 2)));
  ck_assert(isnan(hec_trace_affinity(&(hec_trace_header){.n_layers = 3, .n_experts = 4})));
}

/* Every assignment of the first record has top_k of the next layer behind it. With affinity 1 all go where a coupling of
 * at most 2 E - 1 pairs sends them. With 0 they follow the next layer's loads alone. Same options, same numbers. */
HEC_TEST(synthetic_affinity) {
  enum { LAYERS = 4, EXPERTS = 32, TOP_K = 2 };
  double kept[3] = {0}, affinity[3] = {0};
  for (int a = 0; a < 3; a++) {
    hec_synth_options o = hec_synth_defaults();
    char path[] = "/tmp/hecate-affinity-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    (void)close(file);
    o.workload = "zipf";
    o.n_layers = LAYERS;
    o.n_experts = EXPERTS;
    o.top_k = TOP_K;
    o.n_sources = 4;
    o.n_iterations = 2;
    o.affinity = 0.5 * a;
    ck_ok(hec_synth_write(&o, path));
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    const hec_trace_record *record = NULL;
    ck_ok(hec_trace_open(path, &reader));
    const hec_trace_header *h = hec_trace_header_of(reader);
    ck_ok(hec_trace_next(reader, &record));
    ck_assert(h->transitions && h->transitions_over && h->transitions_first == 1 && h->transitions_last == 1);
    ck_assert(strstr(h->synthetic, "\"affinity\"") && strstr(h->notes, " --affinity "));
    affinity[a] = hec_trace_affinity(h);
    uint64_t total = 0, max = 0;
    for (int32_t l = 0; l + 1 < LAYERS; l++) {
      int32_t n_pairs = 0;
      for (int32_t e = 0; e < EXPERTS; e++) {
        uint64_t sum = 0, best = 0;
        for (int32_t b = 0; b < EXPERTS; b++) {
          uint64_t n = h->transitions[(l * EXPERTS + e) * EXPERTS + b];
          sum += n;
          best = n > best ? n : best;
          n_pairs += n > 0;
        }
        ck_assert_uint_eq(sum, TOP_K * row_sum(&record->load, l, e));
        total += sum;
        max += best;
      }
      ck_assert(a < 2 || n_pairs <= 2 * EXPERTS - 1);
    }
    kept[a] = (double)max / (double)total;
    ck_assert_int_eq(unlink(path), 0);
  }
  ck_assert_msg(affinity[0] < 0.1 && affinity[1] > 0.3 && affinity[2] > affinity[1] + 0.2, "%g %g %g", affinity[0],
                affinity[1], affinity[2]);
  ck_assert_msg(kept[0] < kept[1] - 0.1 && kept[1] < kept[2] - 0.1, "%g %g %g", kept[0], kept[1], kept[2]);
}
