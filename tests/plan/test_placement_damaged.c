/* Damaged files of placements: each is refused with the file, the place and what was expected. */
#include "runtime/base/files.h"
#include "runtime/plan/placement/placement.h"
#include "tests/support/test.h"

#include <regex.h>
#include <string.h>

HEC_TEST_ARENA(arena)

#define EPLB "eplb.json"
#define ASCEND "vllm_ascend.json"
#define TENSORRT "tensorrt_llm.yaml"
#define MAP "physical_to_logical_map"
#define TABLE "initial_global_assignments"

/* What matches (a basic regular expression, of several lines) is `by` instead; ` is a quote. */
static const struct {
  const char *file, *what, *by, *place, *words;
} damaged[] = {
    {EPLB, "0, 3\\]", "0, 6]", MAP "[0][7]", "expected an expert from 0 to 5, found 6"},
    {EPLB, "\\[5, 2", "[-1, 2", MAP "[1][0]", "expected an expert from 0 to 5, found -1"},
    {EPLB, "\\[5, 2", "[5.5, 2", MAP "[1][0]", "found 5.5"},
    {EPLB, "\\[5, 2", "[`5`, 2", MAP "[1][0]", "found `5`"},
    {EPLB, ", 3\\],", "],", MAP "[0]", "as many slots for each of 4 ranks ("},
    {EPLB, ", 4, 5\\]", "]", MAP "[1]", "expected an array of 8 slots, as in the first layer"},
    {EPLB, "3, 5, 4", "3, 5, 5", MAP "[1]", "expected a slot for every expert, found none for expert 4"},
    {EPLB, ",\n *\\[5[^]]*\\]", "", MAP, "the trace's 2 MoE layers after 0 dense ones ("},
    {EPLB, "\\[5, 2[^]]*\\]", "7", MAP "[1]", "expected an array of experts"},
    {EPLB, "\\[\n.*\n  \\]", "{`a`: 1}", MAP, "expected an array of layers"},
    {EPLB, "\\[0, 1", "[0 1", ":3:", "expected"},
    {EPLB, "\n}.*", "", ":", "expected"},
    {EPLB, "]\n  ]", "],[1]]", MAP, "found an array of 3"},
    {ASCEND, "count`: 2", "count`: 3", "moe_layer_count", "found 3"},
    {ASCEND, "`moe_layer_count`: 2,", "", "`moe_layer_count`", "expected a member"},
    {ASCEND, "`layer_id`: 1", "`layer_id`: 4", "layer_list[1].layer_id", "found 4"},
    {ASCEND, "device_count`: 4", "device_count`: 8", "layer_list[0].device_count", "found 8"},
    {ASCEND, ",\n[^\n]*{`device_id`: 3, `device_expert`: \\[4, 5\\]}", "", "layer_list[1].device_list",
     "an array of 4 devices, one for each rank, found an array of 3"},
    {ASCEND, "`device_id`: 2", "`device_id`: 1", "layer_list[0].device_list[2].device_id", "found 1"},
    {ASCEND, "\\[4, 5\\]", "[4, 6]", "layer_list[0].device_list[2].device_expert[1]",
     "expected an expert from 0 to 5, found 6"},
    {ASCEND, "\\[4, 5\\]", "[4, null]", "layer_list[0].device_list[2].device_expert[1]", "found null"},
    {ASCEND, "\\[4, 5\\]", "[4, 4]", "layer_list[0]", "found none for expert 5"},
    {ASCEND, ", `device_expert`: \\[4, 5\\]", "", "layer_list[0].device_list[2]", "`device_expert`"},
    {ASCEND, "\\[4, 5\\]", "5", "layer_list[0].device_list[2].device_expert", "expected an array of experts, found 5"},
    {ASCEND, "\\[4, 5\\]", "[4,5,0,0,0,0,0]", "layer_list[0]", "at most 6 slots on a rank"},
    {ASCEND, "`device_list`", "`devices`", "layer_list[0]", "`device_list`"},
    {ASCEND, ",\n    {\n      `layer_id`: 1.*    }\n  ]", "]", "layer_list",
     "an array of 2 layers, as the trace has MoE layers, found an array of 1"},
    {TENSORRT, "0, 3\\]", "0, 6]", TABLE "[3][7]", "expected a whole number from 0 to 5, found `6]`"},
    {TENSORRT, "\\[5, 2", "[-5, 2", ":3: " TABLE "[4][0]", "found `-5,`"},
    {TENSORRT, "4: \\[", "5: [", ":3: " TABLE, "expected layer 4, which follows the one before, found `5:`"},
    {TENSORRT, "slots: 8", "slots: 9", "num_slots", "expected 8, as in the lists, found 9"},
    {TENSORRT, "num_slots: 8\n", "", "num_slots", "found nothing"},
    {TENSORRT, ", 4, 5\\]", "]", ":4: " TABLE "[4]", "expected 8 slots, as in the first layer, found 6"},
    {TENSORRT, "0, 3\\]", "0]", TABLE "[3]", "as many slots for each of 4 ranks ("},
    {TENSORRT, "3, 5, 4", "3, 5, 5", TABLE "[4]", "found none for expert 4"},
    {TENSORRT, "  4: [^\n]*\n", "", TABLE, "the trace's 2 MoE layers, after 1 the next"},
    {TENSORRT, "layer_up", "  5: [0]\nlayer_up", TABLE, "no more than the trace's 2 MoE layers"},
    {TENSORRT, "  4:", "\t4:", ":3:", "found `?4:`"},
    {TENSORRT, "5\\]\n", "5\n", ":4: " TABLE "[4]", "expected `,` or `]`"},
    {TENSORRT, "3\\]", "3] x", ":2: " TABLE "[3]", "expected the end of the line, found `x`"},
    {TENSORRT, TABLE ":.*layer_up", "layer_up", TABLE, "the file places nothing"},
    {TENSORRT, "layer_updates_per_iter: 0", "layer_updates_per_iter: often", ":4: layer_updates_per_iter",
     "found `often`"},
    {TENSORRT, "num_slots: 8", "num_slots: 8\nnum_slots: 8", ":6: num_slots", "the key once"},
    {TENSORRT, "num_slots", "number_of_slots",
     ":5:", "num_slots, layer_updates_per_iter or ep_size, found `number_of_slots:`"},
    {TENSORRT, "num_slots", "ep_size: 3\nnum_slots", ":5: ep_size", "from 4 to 4"},
    {TENSORRT, "num_slots: 8", "num_slots 8", ":5: num_slots", "expected `: `"},
    {TENSORRT, "5, 0, 3", "05, 0, 3", TABLE "[3][5]", "expected a whole number from 0 to 5, found `05,`"},
    {TENSORRT, "5, 0, 3", "5, -0, 3", TABLE "[3][6]", "found `-0,`"},
    {TENSORRT, "5, 0, 3", "5, `-0`, 3", TABLE "[3][6]", "found ``-0`,`"},
    {TENSORRT, "  3:", "  03:", ":2: " TABLE, "found `03:`"},
    {TENSORRT, "slots: 8", "slots: 010", ":5: num_slots", "found `010`"},
    {TENSORRT, "slots: 8", "slots: 08", ":5: num_slots", "found `08`"},
};

HEC_TEST_ROWS(damaged_files, damaged) {
  char path[64], *whole;
  size_t length;
  regex_t what;
  regmatch_t at;
  (void)snprintf(path, sizeof path, "tests/tools/placements/%s", damaged[_i].file);
  ck_ok(hec_file_read(path, "a placement", 1 << 20, &whole, &length));
  ck_assert_int_eq(regcomp(&what, hec_test_quoted(damaged[_i].what), 0), 0);
  ck_assert_msg(regexec(&what, whole, 1, &at, 0) == 0, "nothing is damaged by %s", damaged[_i].what);
  HEC_SCOPED(hec_text) text = {0};
  hec_text_printf(&text, "%.*s%s%s", (int)at.rm_so, whole, hec_test_quoted(damaged[_i].by), whole + at.rm_eo);
  hec_placement p;
  const hec_placement_shape shape = {.n_layers = 2, .n_experts = 6, .n_ranks = 4, .first_layer = -1};
  ck_refused(hec_placement_parse(text.data, text.length, "file", shape, &arena, &p), "file:");
  ck_refused(HEC_BAD_INPUT, hec_test_quoted(damaged[_i].place));
  ck_refused(HEC_BAD_INPUT, hec_test_quoted(damaged[_i].words));
  regfree(&what);
  free(whole);
}
