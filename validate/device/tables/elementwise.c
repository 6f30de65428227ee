/* elementwise.csv: one memory-bound kernel; a variant is the kernel. Layer and RMS norms of one implementation share theirs:
 * they move the same bytes. */
#include "validate/device/cases.h"

#include <string.h>

static const char *const columns[] = {"gpu", "op", "min_bytes", "seconds", NULL};

static const char *without(const char *text, const char *prefix) {
  size_t n = strlen(prefix);
  return strncmp(text, prefix, n) == 0 ? text + n : text;
}

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  hec_memory_work *work = HEC_NEW(arena, hec_memory_work, 1);
  int64_t bytes;
  c->variant = without(without(hec_case_file_text(csv, "op"), "rms_"), "layer_");
  c->kind = hec_arena_printf(arena, "elementwise %.40s", c->variant);
  if (!hec_case_seconds(csv, arena, c) || !hec_case_whole(csv, "min_bytes", 1, &bytes, arena, c))
    return;
  work->bytes = (double)bytes;
  c->law = "memory";
  c->work = work;
  c->fit = true;
  c->shape = hec_case_hash(0, bytes);
}

const hec_case_table hec_case_table_elementwise = {.file = "elementwise.csv", .columns = columns, .read = read};
