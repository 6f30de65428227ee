/* Peaks as notes state them, and the error on those of the real table, where the shared cases are. */
#include "tests/support/test.h"
#include "validate/training/training.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *notes;
  double gib; /* 0: none */
} stated[] = {
    {"4 micro-batches a rank; peak allocated 45.63 GiB; Megatron", 45.63},
    {"341 TFLOP/s/GPU; 167.93 GiB; fixed local batch 8", 167.93},
    {"peak 51.83 GiB against 54.01", 51.83},
    {"FSDP + context parallel; peak 46.0 GB", 46e9 / 1073741824},
    {"8 H100 a node, NVLink 450 GB/s, InfiniBand 400 Gb/s", 0},
    {"the peak is far from 450 GB/s of NVLink", 0},
    {"some GiB", 0},
    {"", 0},
};

HEC_TEST_ROWS(peaks_in_notes, stated) {
  double gib = hec_training_gib_measured(stated[_i].notes);
  if (stated[_i].gib > 0)
    ck_near(gib, stated[_i].gib);
  else
    ck_assert_msg(isnan(gib), "%s: %g", stated[_i].notes, gib);
}

/* Tensors alone where the notes speak of them, else with what the allocator loses. */
HEC_TEST(predicted_as_stated) {
  hec_training_case c = {.notes = "peak allocated 3 GiB",
                         .result.memory = {.peak = 1073741824, .reserved = 2147483648}};
  ck_near(hec_training_gib_predicted(&c), 1);
  c.notes = "3 GiB";
  ck_near(hec_training_gib_predicted(&c), 2);
}

/* DeepSeek-V2 and V3 of 4 layers on 8 B200 (SimuMax): within 10 %, none with a factor of its own. The form of the terms was
 * chosen with these four peaks in sight; see models/training/memory.c. */
HEC_TEST(published_peaks) {
  const char *path = hec_test_wants("published_peaks", "cases/training/end_to_end.csv", "published peaks of memory");
  hec_training_table table;
  int32_t n = 0;
  if (!path)
    return;
  ck_ok(hec_training_judge(path, NULL, &table));
  for (int32_t i = 0; i < table.n; i++) {
    const hec_training_case *c = &table.cases[i];
    if (strncmp(c->id, "simumax-", 8) != 0)
      continue;
    double error = hec_training_gib_predicted(c) / hec_training_gib_measured(c->notes) - 1;
    ck_assert_msg(fabs(error) < 0.1, "%s: %.1f %%", c->id, 100 * error);
    n++;
  }
  ck_assert_int_eq(n, 12);
  for (int fsdp = 0; fsdp < 2; fsdp++) { /* what recommend says of them */
    hec_peak_band seen = hec_training_peaks_seen(table.cases, table.n, fsdp);
    ck_assert_int_eq(seen.n, hec_peak_bands[fsdp].n);
    ck_assert_double_le(seen.too_low, hec_peak_bands[fsdp].too_low);
    ck_assert_double_gt(seen.too_low, hec_peak_bands[fsdp].too_low - 0.01);
  }
  hec_training_table_free(&table);
}
