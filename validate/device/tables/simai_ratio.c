/* simai_ratio.csv: shares of an ideal bus bandwidth on a GPU and network that its source does not name. */
#include "validate/device/cases.h"

static const char *const columns[] = {"table", "ranks", "nodes", "bytes", "fraction_of_ideal_busbw", NULL};

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  c->kind = hec_arena_printf(arena, "bus bandwidth share %.20s", hec_case_file_text(csv, "table"));
  c->why_not = "neither GPU nor network are stated, so there are no seconds to predict";
}

const hec_case_table hec_case_table_simai_ratio = {.file = "simai_ratio.csv", .columns = columns, .read = read};
