/* What a person needs first: what to run and what it gains, the rows that matter, and what this rests on. The whole of the
 * numbers is summary_table.c's. */
#include "models/gpu_compute.h"
#include "runtime/program/job.h"
#include "tools/front/summary/summary_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { ROWS_MAX = 5 };         /* beside the bound */
static const double LOOSE = 2; /* above: the bound says little */

/* Rows to show, each once. */
typedef struct {
  int32_t *row; /* [n_max] */
  int32_t n, n_max;
} chosen_rows;

typedef bool (*row_kind)(const hec_summary_row *row);

static bool is_system(const hec_summary_row *row) {
  return !row->reference;
}
static bool is_baseline(const hec_summary_row *row) {
  return row->baseline;
}
static bool is_placed(const hec_summary_row *row) {
  return row->placed;
}
static bool rearranges(const hec_summary_row *row) {
  return row->rearranges;
}
static bool gathers(const hec_summary_row *row) { /* FSSDP: has degrees of gathering */
  return !row->reference && row->t_max >= 0;
}

static bool is_chosen(const chosen_rows *chosen, int32_t row) {
  for (int32_t i = 0; i < chosen->n; i++)
    if (chosen->row[i] == row)
      return true;
  return false;
}

bool hec_summary_are_kin(const char *a, const char *b) {
  size_t n = strcspn(a, "-:");
  return strcspn(b, "-:") == n && strncmp(a, b, n) == 0;
}

static bool has_kin(const hec_summary *summary, const chosen_rows *chosen, int32_t row) {
  for (int32_t i = 0; i < chosen->n; i++)
    if (hec_summary_are_kin(summary->rows[chosen->row[i]].name, summary->rows[row].name))
      return true;
  return false;
}

/* The fastest of a kind; that is not there yet; of whose kin none is there yet. */
typedef enum { FASTEST, ANOTHER, OTHER_KIN } choice;

/* Adds one, fitting ones first. False: there is none. */
static bool choose(hec_summary *summary, row_kind of, choice which, chosen_rows *chosen) {
  int32_t best = -1;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    if (!of(row) || (which != FASTEST && is_chosen(chosen, i)) || (which == OTHER_KIN && has_kin(summary, chosen, i)))
      continue;
    bool fits = hec_summary_fits(summary, row),
         best_fits = best >= 0 && hec_summary_fits(summary, &summary->rows[best]);
    if (best < 0 || fits > best_fits ||
        (fits == best_fits && hec_summary_median(row) < hec_summary_median(&summary->rows[best])))
      best = i;
  }
  if (best < 0 || chosen->n == chosen->n_max)
    return false;
  if (!is_chosen(chosen, best))
    chosen->row[chosen->n++] = best;
  return true;
}

int32_t hec_summary_choose_rows(hec_summary *summary, int32_t n_max, int32_t *row) {
  static const row_kind families[] = {is_system, is_baseline, is_placed, rearranges, gathers};
  chosen_rows chosen = {.row = row, .n_max = n_max};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    (void)choose(summary, families[i], FASTEST, &chosen);
  while (choose(summary, is_system, OTHER_KIN, &chosen) || choose(summary, is_system, ANOTHER, &chosen)) {
  }
  hec_summary_sort(summary, chosen.row, chosen.n);
  return chosen.n;
}

/* ---- The verdict ---- */

static double gain(hec_summary *summary, int32_t best, int32_t other) {
  return hec_summary_median(&summary->rows[other]) / hec_summary_median(&summary->rows[best]);
}

static const char *unit_of(const hec_summary *summary) {
  return summary->job->problem.train ? "iteration" : "forward pass";
}

/* "ep (which does not fit)", "given (your placement)" */
static void add_other(const hec_summary *summary, const hec_summary_row *row, hec_text *words) {
  const bool fits = hec_summary_fits(summary, row);
  hec_text_printf(words, "%s%s%s%s%s", row->label, row->placed || !fits ? " (" : "",
                  row->placed ? "your placement" : "", row->placed && !fits ? ", " : "",
                  fits ? "" : "which does not fit");
  hec_text_add(words, row->placed || !fits ? ")" : "");
}

/* "It is 1.20x as fast as ep and 1.05x as fast as given (your placement), mostly by ..." */
static void add_gain(hec_summary *summary, int32_t best, const char *between, hec_text *words) {
  const int32_t baseline = hec_summary_baseline(summary), placed = hec_summary_placed(summary);
  const bool over_baseline = baseline >= 0 && baseline != best, over_placed = placed >= 0 && placed != best;
  if (!over_baseline && !over_placed)
    return;
  hec_text_printf(words, "%sIt is", between);
  if (over_baseline) {
    hec_text_printf(words, " %.2fx as fast as ", gain(summary, best, baseline));
    add_other(summary, &summary->rows[baseline], words);
  }
  if (over_placed) {
    hec_text_printf(words, "%s %.2fx as fast as ", over_baseline ? " and" : "", gain(summary, best, placed));
    add_other(summary, &summary->rows[placed], words);
  }
  hec_summary_add_reason(&summary->rows[best], &summary->rows[over_placed ? placed : baseline], words);
  hec_text_add(words, ".");
}

/* "Under schedule serial, as published, ep takes 2.05x as long as joint." Of the rows that people run today, where another
 * schedule is faster: the gain above is over that one. */
static void add_published(hec_summary *summary, int32_t best, const char *between, hec_text *words) {
  const int32_t today[] = {hec_summary_baseline(summary), hec_summary_placed(summary)};
  const char *schedule = NULL;
  for (size_t i = 0; i < sizeof today / sizeof *today; i++) {
    hec_summary_row *row = today[i] >= 0 ? &summary->rows[today[i]] : NULL;
    if (!row || row->published_s <= hec_summary_median(row) || (schedule && strcmp(schedule, row->published) != 0))
      continue;
    double times = row->published_s / hec_summary_median(&summary->rows[best]);
    if (schedule)
      hec_text_printf(words, ", %s %.2fx", row->name, times);
    else
      hec_text_printf(words, "%sUnder schedule %s, as published, %s takes %.2fx as long as %s", between, row->published,
                      row->name, times, summary->rows[best].name);
    schedule = row->published;
  }
  if (schedule)
    hec_text_add(words, ".");
}

int32_t hec_summary_kept(hec_summary *summary, int32_t best) {
  int32_t placed = hec_summary_placed(summary), kept = placed >= 0 ? placed : hec_summary_baseline(summary);
  bool keep = kept >= 0 && hec_summary_fits(summary, &summary->rows[kept]) &&
              gain(summary, best, kept) <= 1 + HEC_SUMMARY_CLOSE;
  return keep ? kept : -1;
}

static void add_cost(const hec_summary *summary, const hec_summary_row *row, hec_text *words) {
  double memory = hec_summary_memory(summary), share = 100 * row->peak_bytes / memory;
  hec_text_printf(words, "Its fullest rank needs %.3g of %.3g GB", row->peak_bytes * 1e-9, memory * 1e-9);
  if (share < 1)
    hec_text_add(words, " (less than 1 %).");
  else
    hec_text_printf(words, " (%.0f %%).", share);
}

const char *hec_summary_rates(const hec_cluster *cluster) {
  return cluster->measured.n > 0 ? "measured"
         : cluster->gpu && cluster->gpu->gpu.n_own > 0
             ? "fitted to published measurements of such GPUs, links between nodes assumed"
         : cluster->gpu ? "scaled from a similar GPU with published measurements, links between nodes assumed"
                        : "data sheets and assumptions, not measured on your machine";
}

/* How sure this is, as far as the cluster says. */
static void add_trust(const hec_summary *summary, hec_text *words) {
  const hec_cluster *cluster = &summary->job->cluster;
  hec_text_printf(words, "This is a prediction: the rates of cluster %s are %s.", cluster->name,
                  hec_summary_rates(cluster));
}

static void add_advice(hec_summary *summary, int32_t best, const char *between, hec_text *words) {
  int32_t kept = hec_summary_kept(summary, best);
  hec_summary_row *row = &summary->rows[kept >= 0 ? kept : best];
  const bool alone = summary->n_rows == 1;
  if (alone)
    hec_text_printf(words, "Only %s was compared (schedule %s)", row->label, row->schedule);
  else
    hec_text_printf(words, "%s%s: %s (schedule %s)", kept >= 0 ? "Keep what you have" : "Fastest that fits",
                    kept < 0 && hec_summary_drops(summary) ? " and drops nothing" : "", row->label, row->schedule);
  hec_text_printf(words, "%s %.3f ms per %s.", alone ? ":" : ",", 1e3 * hec_summary_median(row), unit_of(summary));
  if (kept < 0)
    add_gain(summary, best, between, words);
  else if (!alone && kept == best)
    hec_text_printf(words, "%sNo other policy that fits is faster.", between);
  else if (!alone)
    hec_text_printf(words, "%sThe fastest that fits, %s, gains %.1f %%: too little to choose by.", between,
                    summary->rows[best].label, hec_summary_percent(gain(summary, best, kept) - 1));
  add_published(summary, kept >= 0 ? kept : best, between, words);
  if (isfinite(hec_summary_vs_bound(row)))
    hec_text_printf(words, "%sNo policy of its kind can be more than %.2fx as fast (the bound%s).", between,
                    hec_summary_vs_bound(row), hec_summary_vs_bound(row) > LOOSE ? ", probably a loose one" : "");
  hec_text_add(words, between);
  add_cost(summary, row, words);
  hec_text_add(words, between);
  add_trust(summary, words);
}

/* Where nothing fits: how much is missing, and what would help. */
static void add_no_fit(const hec_summary *summary, const char *between, hec_text *words) {
  const hec_summary_row *smallest = NULL;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (is_system(&summary->rows[i]) && (!smallest || summary->rows[i].peak_bytes < smallest->peak_bytes))
      smallest = &summary->rows[i];
  hec_text_add(words, "No policy fits into the memory of a device of this cluster.");
  if (smallest)
    hec_text_printf(words, "%sThe smallest, %s, needs %.3g GB; a device has %.3g GB.", between, smallest->label,
                    1e-9 * smallest->peak_bytes, 1e-9 * hec_summary_memory(summary));
  hec_text_printf(words, "%sUse more ranks, devices with more memory, or fewer --tokens.", between);
  if (summary->job->problem.train)
    hec_text_printf(words,
                    "%sWith pipeline stages, ZeRO or recomputation a training job may fit: see hecate-sim recommend.",
                    between);
}

void hec_summary_advice(hec_summary *summary, const char *between, hec_text *words) {
  int32_t best = hec_summary_winner(summary);
  if (best < 0)
    add_no_fit(summary, between, words);
  else
    add_advice(summary, best, between, words);
}

/* What may mislead: the same words as in the list of what was assumed. */
void hec_summary_say_minds(const hec_summary *summary, hec_text *words) {
  const hec_job *job = summary->job;
  for (int32_t i = 0; i < job->n_minds; i++)
    hec_text_printf(words, "%s%s", i > 0 ? "; " : "Mind: ", job->minds[i]);
  hec_text_add(words, job->n_minds > 0 ? "." : "");
}

static void add_verdict(hec_summary *summary, int32_t best, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  hec_summary_advice(summary, " ", &words);
  hec_summary_add_paragraph(words.data, 0, out);
  words.length = 0;
  if (best >= 0)
    hec_summary_add_close(summary, best, out);
  hec_summary_say_minds(summary, &words);
  if (words.length > 0)
    hec_summary_add_paragraph(words.data, 0, out);
  hec_summary_add_cross(summary, out);
}

/* ---- The table ---- */

static int widest(int width, const char *text) {
  return (int)strlen(text) > width ? (int)strlen(text) : width;
}

static double bound_s(hec_summary_row *row) {
  return hec_summary_median(row) / hec_summary_vs_bound(row);
}

static bool same_bound(hec_summary_row *a, hec_summary_row *b) {
  return fabs(bound_s(a) / bound_s(b) - 1) < 1e-9;
}

/* Rows of another kind than the one whose bound is shown may have another bound: each bound once, by its first row. */
static void add_other_bounds(hec_summary *summary, const chosen_rows *chosen, int32_t best, int decimals,
                             hec_text *out) {
  static const char title[] = "x bound:";
  HEC_SCOPED(hec_text) words = {0};
  for (int32_t i = 0; i < chosen->n; i++) {
    hec_summary_row *row = &summary->rows[chosen->row[i]];
    bool again = !isfinite(hec_summary_vs_bound(row)) || same_bound(row, &summary->rows[best]);
    for (int32_t k = 0; k < i && !again; k++)
      again = same_bound(row, &summary->rows[chosen->row[k]]);
    if (!again)
      hec_text_printf(&words, "%s%s %.*f ms", words.length > 0 ? ", " : "", row->label, decimals, 1e3 * bound_s(row));
  }
  if (words.length > 0) {
    HEC_SCOPED(hec_text) line = {0};
    hec_text_printf(&line, "time over a bound for the policy's kind. The row bound is for %s's kind; other kinds: %s.",
                    summary->rows[best].label, words.data);
    hec_text_add(out, title);
    hec_summary_add_wrapped(line.data, sizeof title - 1, (int)sizeof title, out);
  }
}

static void add_table(hec_summary *summary, const chosen_rows *chosen, int32_t best, hec_text *out) {
  int name = 6, schedule = 8, decimals = hec_summary_decimals(summary);
  bool small = hec_summary_peaks_are_small(summary),
       bound = best >= 0 && isfinite(hec_summary_vs_bound(&summary->rows[best]));
  for (int32_t i = 0; i < chosen->n; i++) {
    name = widest(name, summary->rows[chosen->row[i]].name);
    schedule = widest(schedule, summary->rows[chosen->row[i]].schedule);
  }
  hec_text_printf(out, "\n%-*s  %-*s  %10s  %6s  %7s  %8s  %7s\n", name, "policy", schedule, "schedule", "median, ms",
                  "vs ep", "x bound", "overload", small ? "peak, MB" : "peak, GB");
  if (bound)
    hec_text_printf(out, "%-*s  %-*s  %10.*f  %6s  %6.2fx\n", name, "bound", schedule, "", decimals,
                    1e3 * bound_s(&summary->rows[best]), "", 1.0);
  for (int32_t i = 0; i < chosen->n; i++) {
    hec_summary_row *row = &summary->rows[chosen->row[i]];
    hec_text_printf(out, "%-*s  %-*s  %10.*f ", name, row->name, schedule, row->schedule, decimals,
                    1e3 * hec_summary_median(row));
    hec_summary_add_ratio(out, 6, hec_summary_vs_baseline(summary, chosen->row[i]));
    hec_text_add(out, " ");
    hec_summary_add_ratio(out, 7, hec_summary_vs_bound(row));
    hec_text_printf(out, "  %8.2f  %8.2f%s\n", hec_series_quantile(&row->overload, 0.5),
                    row->peak_bytes * (small ? 1e-6 : 1e-9), hec_summary_fits(summary, row) ? "" : " too much");
  }
  hec_summary_add_no_baseline(summary, out);
  if (bound)
    add_other_bounds(summary, chosen, best, decimals, out);
}

/* ---- What it rests on ---- */

/* "name:" and its words, in lines, words under words. */
/* What was not said by the user, by its name: a choice's sentence begins with it. */
static void add_assumed(const hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  HEC_SCOPED(hec_text) words = {0};
  for (int32_t i = 0; i < job->n_defaults; i++) {
    size_t length = strcspn(job->defaults[i], ":");
    bool again = false;
    for (int32_t k = 0; k < i && !again; k++)
      again = strncmp(job->defaults[k], job->defaults[i], length + 1) == 0;
    if (!again)
      hec_text_printf(&words, "%s%.*s", words.length > 0 ? ", " : "", (int)length, job->defaults[i]);
  }
  if (words.length > 0) {
    hec_text_add(&words, ". --full says what and why.");
    hec_summary_add_foot("assumed:", words.data, out);
  }
}

void hec_summary_first_screen(hec_summary *summary, const char *files, hec_text *out) {
  const hec_job *job = summary->job;
  HEC_SCOPED(hec_text) words = {0};
  hec_text_printf(&words, "%s: ", summary->tool);
  hec_text_add_plain(&words, job->header.name[0] ? job->header.name : summary->trace);
  hec_text_printf(&words, "%s, %" PRId64 " iteration%s; model %s on %" PRId32 " ranks of %s, %" PRId32 " tokens each",
                  job->header.synthetic ? " (synthetic)" : "", summary->n_iterations,
                  summary->n_iterations == 1 ? "" : "s", job->moe.name, job->problem.n_ranks, job->cluster.name,
                  job->problem.tokens);
  hec_summary_add_paragraph(words.data, 2, out);
  hec_text_add(out, "\n");
  int32_t best = hec_summary_winner(summary);
  add_verdict(summary, best, out);
  int32_t row[ROWS_MAX];
  chosen_rows chosen = {row, hec_summary_choose_rows(summary, ROWS_MAX, row), ROWS_MAX};
  add_table(summary, &chosen, best, out);
  hec_summary_add_attentions(summary, out);
  hec_text_add(out, "\n");
  add_assumed(summary, out);
  hec_summary_add_foot("not modelled:", summary->not_modelled, out);
  hec_summary_add_foot("more:", files, out);
}
