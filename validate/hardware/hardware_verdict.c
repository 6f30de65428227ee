/* What a reader must know first: by how much the required holds, and in the same breath where the laws are weak. Every
 * number is formed from the rows; O(rows * presets). */
#include "models/preset_data.h"
#include "validate/hardware/hardware.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FEW = 6 }; /* rows that are named one by one */

static double error_of(const hec_hardware_row *row) {
  return row->predicted_s / row->measured_s - 1;
}

static bool is_collective(const hec_hardware_row *row) {
  return row->kind <= HEC_HARDWARE_ALL_REDUCE;
}

/* What is nearest to its limit, of the rankings or of the errors; NULL without any. The worse of both values counts. */
static const hec_hardware_line *nearest(const hec_hardware *h, bool at_least) {
  const hec_hardware_line *found = NULL;
  double worst = 0;
  for (int32_t i = 0; i < h->n_lines; i++) {
    const hec_hardware_line *line = &h->lines[i];
    double value = at_least ? -fmin(line->value[0], line->value[1]) : fmax(line->value[0], line->value[1]);
    if (line->at_least == at_least && (!found || value > worst)) {
      found = line;
      worst = value;
    }
  }
  return found;
}

static void add_nearest(const hec_hardware *h, hec_text *out) {
  const hec_hardware_line *tau = nearest(h, true), *error = nearest(h, false);
  if (tau)
    hec_text_printf(out, "lowest Kendall tau %.3f (%.3f by size alone; at least %.2g; n = %" PRId32 ", ",
                    fmin(tau->value[0], tau->value[1]), tau->size[tau->value[1] < tau->value[0]], tau->limit,
                    tau->rows);
  if (tau)
    hec_text_add_plain(out, tau->group);
  if (error)
    hec_text_printf(out, "), highest median error of large rows %.1f %% (at most %.0f %%; n = %" PRId32 ", ",
                    100 * fmax(error->value[0], error->value[1]), 100 * error->limit, error->rows);
  if (error)
    hec_text_add_plain(out, error->group);
  hec_text_add(out, ").");
}

/* All-to-all between nodes: what counts most for MoE. */
static void add_internode(const hec_hardware *h, hec_text *out) {
  int32_t rows = 0, accepted = 0;
  double worst = 0;
  for (int32_t i = 0; i < h->n_rows; i++) {
    const hec_hardware_row *row = &h->rows[i];
    if (row->kind != HEC_HARDWARE_ALL_TO_ALL || row->nodes < 2)
      continue;
    rows++;
    accepted += !row->bound;
    worst = fabs(error_of(row)) > fabs(worst) ? error_of(row) : worst;
  }
  if (rows == 0)
    hec_text_add(out, "- No row of all-to-all between nodes.\n");
  else if (accepted == 0)
    hec_text_printf(out,
                    "- No accepted row of all-to-all between nodes: all there are, %" PRId32
                    ", are upper bounds, and the "
                    "law is up to %.0f %% %s them.\n",
                    rows, 100 * fabs(worst), worst < 0 ? "below" : "above");
  else
    hec_text_printf(out,
                    "- All-to-all between nodes: %" PRId32 " of %" PRId32 " rows accepted, worst error %+.0f %%.\n",
                    accepted, rows, 100 * worst);
}

static void add_moe(const hec_hardware *h, hec_text *out) {
  for (int32_t g = 0; g < h->n_groups; g++) {
    const hec_hardware_group *group = &h->groups[g];
    bool moe = false;
    for (int32_t i = 0; i < h->n_rows; i++)
      moe = moe || (h->rows[i].kind == HEC_HARDWARE_MOE && strcmp(h->rows[i].group, group->name) == 0);
    if (moe)
      hec_text_printf(out,
                      "- Fused MoE layers: median bias %+.0f %%, worst %.0f %% off (n = %" PRId32 "); nothing beyond "
                      "tau is required of them, because the requirement on \"GEMMs\" was read as the dense ones.\n",
                      100 * group->error[0].bias, 100 * group->error[0].worst, group->error[0].n);
  }
}

static void add_small(const hec_hardware *h, hec_text *out) {
  double fast = 0;
  int32_t n = 0;
  for (int32_t i = 0; i < h->n_rows; i++)
    if (is_collective(&h->rows[i]) && !h->rows[i].large) {
      fast = fmin(fast, error_of(&h->rows[i]));
      n++;
    }
  if (n > 0)
    hec_text_printf(
        out, "- Messages below 64 MiB: up to %.0f %% too fast (n = %" PRId32 "); no error is required of them.\n",
        -100 * fast, n);
}

/* An upper bound that the law exceeds: there it is wrong, whatever the hardware really takes. */
static void add_exceeded(const hec_hardware *h, hec_text *out) {
  int32_t n = 0;
  for (int32_t i = 0; i < h->n_rows; i++) {
    const hec_hardware_row *row = &h->rows[i];
    if (!row->bound || row->predicted_s <= row->measured_s)
      continue;
    hec_text_add(out, n++ == 0 ? "- Shown failure: the law is above an upper bound in " : ", ");
    hec_text_add_plain(out, row->id);
    hec_text_add(out, " (");
    hec_text_add_plain(out, row->what);
    hec_text_printf(out, ", %" PRId32 " ranks on %" PRId32 ", %+.1f %%)", row->ranks, row->nodes, 100 * error_of(row));
  }
  hec_text_add(out, n > 0 ? ".\n" : "");
}

static void add_large_gemms(const hec_hardware *h, hec_text *out) {
  int32_t n = 0, shown = 0;
  for (int32_t i = 0; i < h->n_rows; i++)
    n += h->rows[i].kind == HEC_HARDWARE_GEMM && h->rows[i].large;
  if (n == 0 || n > FEW)
    return;
  hec_text_printf(out, "- Large dense GEMMs are %" PRId32 " rows: ", n);
  for (int32_t i = 0; i < h->n_rows; i++) {
    const hec_hardware_row *row = &h->rows[i];
    if (row->kind != HEC_HARDWARE_GEMM || !row->large)
      continue;
    hec_text_add(out, shown++ > 0 ? "; " : "");
    hec_text_add_plain(out, row->id);
    hec_text_printf(out, " %" PRId64 " x %" PRId64 " x %" PRId64 " %+.1f %% (", row->m, row->n, row->k,
                    100 * error_of(row));
    hec_text_add_plain(out, row->hardware);
    hec_text_add(out, ")");
  }
  hec_text_add(out, ".\n");
}

static bool is_used(const hec_hardware *h, const char *preset) {
  for (int32_t i = 0; i < h->n_rows; i++)
    if (strcmp(h->rows[i].cluster, preset) == 0)
      return true;
  return false;
}

/* Rankings that a law without any physics would pass as well. */
static void add_easy(const hec_hardware *h, hec_text *out) {
  int32_t n = 0;
  for (int32_t i = 0; i < h->n_lines; i++) {
    const hec_hardware_line *line = &h->lines[i];
    if (!line->at_least || fmin(line->size[0], line->size[1]) < line->limit)
      continue;
    hec_text_add(out, n++ > 0 ? ", " : "- Tau proves little where size alone passes too: ");
    hec_text_add_plain(out, line->group);
    hec_text_printf(out, " (%.3f)", line->size[0]);
  }
  hec_text_add(out, n > 0 ? ".\n" : "");
}

static void add_unmeasured(const hec_hardware *h, hec_text *out) {
  static const char kind[] = "cluster-";
  int32_t n = 0;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    const char *name = preset->name + sizeof kind - 1;
    if (strncmp(preset->name, kind, sizeof kind - 1) == 0 && !is_used(h, name))
      hec_text_printf(out, "%s%s", n++ > 0 ? ", " : "- Presets that no row is priced with: ", name);
  }
  if (!is_used(h, "dgx-h100") && !is_used(h, "dgx-h200") && !is_used(h, "h800") && !is_used(h, "gb200-nvl72"))
    hec_text_add(out, "; H100, H200, H800 and GB200 have no measurement here at all");
  hec_text_add(out, n > 0 ? ".\n" : "");
}

void hec_hardware_verdict(const hec_hardware *h, hec_text *out) {
  int32_t held = 0;
  for (int32_t i = 0; i < h->n_lines; i++)
    held += h->lines[i].passed;
  hec_text_printf(out, "**%" PRId32 " of %" PRId32 " required bounds hold**, with and without upper bounds: ", held,
                  h->n_lines);
  add_nearest(h, out);
  hec_text_add(out, " Weakest:\n\n");
  add_internode(h, out);
  add_moe(h, out);
  add_small(h, out);
  add_exceeded(h, out);
  add_large_gemms(h, out);
  add_easy(h, out);
  add_unmeasured(h, out);
  hec_text_add(out, "\n");
}
