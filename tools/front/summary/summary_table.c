/* For people: two tables of one row per policy (how long, where the time goes) and the verdict in words. Times are in
 * milliseconds. Tables are at most 110 columns wide, prose 100; on a narrower terminal prose is as wide as that. */
#include "runtime/plan/rates.h"
#include "runtime/program/job.h"
#include "tools/front/summary/summary_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { CLOSE_TOLD = 8 };                  /* rows that are practically as fast as the best */
enum { COLUMNS_MIN = 40, COLUMNS = 100 }; /* below the min a terminal breaks tables anyway */

static size_t columns(void) {
  struct winsize window;
  bool known = isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0;
  return known && window.ws_col >= COLUMNS_MIN && window.ws_col < COLUMNS ? window.ws_col : COLUMNS;
}

void hec_summary_add_model(const hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_problem *problem = &job->problem;
  hec_text_printf(out,
                  "model    %s: %" PRId32 " MoE layers, %" PRId32 " experts, top-%" PRId32 ", d_model %" PRId32
                  ", d_ffn %" PRId32 "%s",
                  job->moe.name, problem->n_layers, problem->n_experts, problem->top_k, job->moe.d_model,
                  job->moe.d_ffn, job->moe.attention == HEC_ATTENTION_S2 ? "\n         attention " : ", attention ");
  hec_attention_write(job->moe.attention, job->moe.s2, job->moe.n_heads, out);
  hec_text_add(out, "\n");
}

void hec_summary_add_work(const hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  hec_text_printf(out, "work     %s, %" PRId32 " tokens per rank",
                  job->problem.train ? "training iteration" : "forward pass", job->problem.tokens);
  if (job->micro_batches > 1)
    hec_text_printf(out, " and micro-batch, %" PRId32 " micro-batches", job->micro_batches);
  hec_text_add(out, "\n");
}

void hec_summary_add_wrapped(const char *words, size_t column, int indent, hec_text *out) {
  hec_text_wrap(out, words, column, indent, columns());
  hec_text_add(out, "\n");
}

void hec_summary_add_foot(const char *name, const char *words, hec_text *out) {
  enum { INDENT = 14 };
  hec_text_printf(out, "%-*s", INDENT - 1, name);
  hec_summary_add_wrapped(words, INDENT - 1, INDENT, out);
}

void hec_summary_add_paragraph(const char *words, int indent, hec_text *out) {
  HEC_SCOPED(hec_text) lines = {0};
  hec_summary_add_wrapped(words, 0, indent, &lines);
  hec_text_add(out, lines.data + 1); /* without the blank before a first word */
}

void hec_summary_add_defaults(const hec_summary *summary, hec_text *out) {
  for (int32_t i = 0; i < summary->job->n_defaults; i++) {
    hec_text_add(out, i == 0 ? "assumed " : "        ");
    hec_summary_add_wrapped(summary->job->defaults[i], 8, 11, out);
  }
}

void hec_summary_sort(hec_summary *summary, int32_t *rows, int32_t n) {
  for (int32_t i = 1; i < n; i++)
    for (int32_t k = i; k > 0; k--) {
      int32_t before = rows[k - 1], after = rows[k];
      double before_s = hec_summary_median(&summary->rows[before]), after_s = hec_summary_median(&summary->rows[after]);
      if (before_s < after_s || (before_s <= after_s && before < after))
        break;
      rows[k - 1] = after;
      rows[k] = before;
    }
}

void hec_summary_add_no_baseline(const hec_summary *summary, hec_text *out) {
  if (hec_summary_baseline(summary) < 0)
    hec_text_add(out, "vs ep is \"-\": ep was not compared. Add ep to --policy.\n");
}

double hec_summary_percent(double share) {
  return 0.1 * round(1e3 * share);
}

static void add_header(hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  const hec_problem *problem = &job->problem;
  hec_text_printf(out, "%s: ", summary->tool);
  hec_text_add_plain(out, job->header.name[0] ? job->header.name : summary->trace);
  hec_text_printf(out, "%s, %" PRId64 " iteration%s\n", job->header.synthetic ? " (synthetic)" : "",
                  summary->n_iterations, summary->n_iterations == 1 ? "" : "s");
  hec_summary_add_model(summary, out);
  HEC_SCOPED(hec_text) where = {0};
  hec_text_printf(&where, "%s: %" PRId32 " ranks on %" PRId32 " node%s, %.4g GB each; network law %s",
                  job->cluster.name, problem->n_ranks, problem->n_nodes, problem->n_nodes == 1 ? "" : "s",
                  hec_summary_memory(summary) * 1e-9, summary->law);
  hec_text_add(out, "cluster ");
  hec_summary_add_wrapped(where.data, 8, 9, out);
  hec_summary_add_work(summary, out);
  hec_text_add(out, "left out");
  hec_summary_add_wrapped(summary->not_modelled, 8, 9, out);
  hec_summary_add_defaults(summary, out);
}

void hec_summary_add_ratio(hec_text *out, int width, double ratio) {
  if (isfinite(ratio))
    hec_text_printf(out, " %*.2fx", width - 1, ratio);
  else
    hec_text_printf(out, " %*s", width, "-");
}

static int name_width(const hec_summary *summary, bool labels) {
  int width = 17;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    int length = (int)strlen(labels ? summary->rows[i].label : summary->rows[i].name);
    width = length > width ? length : width;
  }
  return width;
}

/* Digits after the point, so that the slowest row keeps four or five figures. */
int hec_summary_decimals(hec_summary *summary) {
  double max_ms = 0;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    double ms = 1e3 * hec_series_quantile(&summary->rows[i].iteration_s, 1);
    max_ms = ms > max_ms ? ms : max_ms;
  }
  return max_ms < 100 ? 3 : max_ms < 1000 ? 2 : max_ms < 1e5 ? 1 : 0;
}

/* Small jobs are in megabytes. */
bool hec_summary_peaks_are_small(const hec_summary *summary) {
  double max = 0;
  for (int32_t i = 0; i < summary->n_rows; i++)
    max = summary->rows[i].peak_bytes > max ? summary->rows[i].peak_bytes : max;
  return max < 0.1e9;
}

int hec_summary_schedule_width(const hec_summary *summary) {
  int width = 8;
  for (int32_t i = 0; i < summary->n_rows; i++)
    if ((int)strlen(summary->rows[i].schedule) > width)
      width = (int)strlen(summary->rows[i].schedule);
  return width;
}

/* Rows in the order `at`. */
static void add_times(hec_summary *summary, const int32_t *at, int width, int decimals, hec_text *out) {
  int schedule = hec_summary_schedule_width(summary);
  bool small = hec_summary_peaks_are_small(summary);
  hec_text_printf(out, "\n%-*s  %*s  %28s %7s %7s  %12s  %7s\n", width, "", schedule, "", "iteration, ms", "speed",
                  "median", "overload", "peak");
  hec_text_printf(out, "%-*s  %-*s  %9s %9s %8s %7s %7s  %6s %5s  %7s %s\n", width, "policy", schedule, "schedule",
                  "median", "p95", "mean", "vs ep", "x bound", "p50", "p95", small ? "MB" : "GB", "fits");
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[at[i]];
    hec_text_printf(out, "%-*s  %-*s  %9.*f %9.*f %8.*f", width, row->name, schedule, row->schedule, decimals,
                    1e3 * hec_summary_median(row), decimals, 1e3 * hec_series_quantile(&row->iteration_s, 0.95),
                    decimals, 1e3 * hec_summary_mean(row));
    hec_summary_add_ratio(out, 7, hec_summary_vs_baseline(summary, at[i]));
    hec_summary_add_ratio(out, 7, hec_summary_vs_bound(row));
    hec_text_printf(out, "  %6.2f %5.2f  %7.2f %s\n", hec_series_quantile(&row->overload, 0.5),
                    hec_series_quantile(&row->overload, 0.95), row->peak_bytes * (small ? 1e-6 : 1e-9),
                    hec_summary_fits(summary, row) ? "yes" : "NO");
  }
  hec_summary_add_no_baseline(summary, out);
}

static void add_books(hec_summary *summary, const int32_t *at, int width, int decimals, hec_text *out) {
  static const hec_book order[] = {HEC_BOOK_COMPUTE, HEC_BOOK_TOKEN,     HEC_BOOK_PARAM,
                                   HEC_BOOK_GRAD,    HEC_BOOK_MIGRATION, HEC_BOOK_PLAN};
  double skew_ms = 0;
  hec_text_printf(out, "\n%-*s %9s  %8s\n", width, "where it goes, ms", "", "exposed:");
  hec_text_printf(out, "%-*s %9s  %8s %8s %8s %8s %8s %8s\n", width, "(mean over ranks)", "compute", "token", "param",
                  "grad", "migrate", "plan", "wait");
  for (int32_t i = 0; i < summary->n_rows; i++) {
    const hec_summary_row *row = &summary->rows[at[i]];
    double per_ms = row->stride > 0 ? 1e3 / row->stride : 0;
    hec_text_printf(out, "%-*s", width, row->label);
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
      hec_text_printf(out, k == 0 ? " %9.*f " : " %8.*f", decimals, per_ms * row->book_s[order[k]]);
    hec_text_printf(out, " %8.*f\n", decimals, per_ms * row->wait_s);
    skew_ms = per_ms * row->skew_s > skew_ms ? per_ms * row->skew_s : skew_ms;
  }
  if (skew_ms > 0)
    hec_text_printf(out,
                    "start skew: for %.*f ms more, mean over ranks, the late ranks have not begun; in no column, "
                    "and not of bounds\n",
                    decimals, skew_ms);
}

static void add_range(const char *name, int32_t min, int32_t max, hec_text *out) {
  hec_text_printf(out, "%s %" PRId32, name, min);
  if (max > min)
    hec_text_printf(out, " to %" PRId32, max);
}

static bool same_degrees(const hec_summary_row *a, const hec_summary_row *b) {
  return a->t_min == b->t_min && a->t_max == b->t_max && a->m_min == b->m_min && a->m_max == b->m_max;
}

/* What hides a gather: of an execution as its plans assume it, and as it was. */
static void add_window(const hec_summary *summary, const hec_summary_row *row, hec_text *out) {
  const hec_problem *problem = &summary->job->problem;
  hec_text_printf(out,
                  "\nt: hottest experts copied before the gate, m: copies that a rank has room for; per layer\n"
                  "  T %.3f ms hide a gather (forward before an MoE layer%s",
                  1e3 * problem->window_s, summary->execution ? ", as planned for the cluster" : "");
  if (row->n_before > 0)
    hec_text_printf(out, "; measured: %.3f ms)\n  ", 1e3 * row->before_s / (double)row->n_before);
  else
    hec_text_add(out, "), ");
  double bw = hec_rates_of(problem).node, expert = problem->bytes.expert_param;
  hec_text_printf(out, "bw %.4g GB/s (a %s), expert %.4g MB", 1e-9 * bw, problem->n_nodes == 1 ? "device" : "node",
                  1e-6 * expert);
  hec_text_printf(out, "\n  T bw: up to %.4g MB of a layer into a %s, %.1f experts", 1e-6 * problem->window_s * bw,
                  problem->n_nodes == 1 ? "device" : "node", problem->window_s * bw / expert);
  if (problem->n_nodes > 1)
    hec_text_printf(out, "; %.4g MB a rank", 1e-6 * problem->window_s * hec_rates_of(problem).rank);
  if (hec_moe_n_dense_attention(problem->moe, true) > 0)
    hec_text_printf(out, "; dense layers beside s2: T %.3f ms", 1e3 * problem->dense_window_s);
}

/* What FSSDP chose, rows that chose alike on one line. Rows that copy nothing by design are left out. */
static void add_degrees(const hec_summary *summary, hec_text *out) {
  const hec_summary_row *before = NULL;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    const hec_summary_row *row = &summary->rows[i];
    if (row->t_max < 0 || (row->t_max == 0 && row->m_max == 0))
      continue;
    if (before && same_degrees(before, row)) {
      hec_text_printf(out, ", %s", row->label);
      continue;
    }
    if (!before)
      add_window(summary, row, out);
    add_range("\n  t", row->t_min, row->t_max, out);
    add_range(", m", row->m_min, row->m_max, out);
    hec_text_printf(out, "%s: %s", row->m_max == 0 ? " (no room for copies, or none wanted)" : "", row->label);
    before = row;
  }
  if (before)
    hec_text_add(out, "\n");
}

/* Rows that compute less than the gate chose. */
static void add_dropped(const hec_summary *summary, hec_text *out) {
  for (int32_t i = 0; i < summary->n_rows; i++)
    if (summary->rows[i].dropped_share >= 0)
      hec_text_printf(out, "\n%s drops %.1f %% of the token-expert assignments: its time buys less than the others'\n",
                      summary->rows[i].label, 100 * summary->rows[i].dropped_share);
}

/* "NAME: what is said of it", further lines indented. */
static void add_paragraph(const char *name, const char *what, hec_text *out) {
  hec_text_printf(out, "%s:", name);
  hec_summary_add_wrapped(what, strlen(name) + 1, 2, out);
}

bool hec_summary_say_noted(const hec_summary *summary, int32_t index, hec_text *who) {
  const hec_summary_row *rows = summary->rows;
  int32_t before = 0;
  while (before < index && strcmp(rows[before].note, rows[index].note) != 0)
    before++;
  if (!rows[index].note[0] || before < index)
    return false;
  hec_text_add(who, rows[index].label);
  for (int32_t k = index + 1; k < summary->n_rows; k++)
    if (strcmp(rows[index].note, rows[k].note) == 0)
      hec_text_printf(who, ", %s", rows[k].label);
  return true;
}

/* What policies say of themselves; who says the same, once. */
static void add_notes(const hec_summary *summary, hec_text *out) {
  for (int32_t i = 0; i < summary->n_rows; i++) {
    HEC_SCOPED(hec_text) who = {0};
    if (hec_summary_say_noted(summary, i, &who)) {
      hec_text_add(out, "\n");
      add_paragraph(who.data, summary->rows[i].note, out);
    }
  }
}

/* Layers are counted in every micro-batch of every iteration. */
static void describe_choice(const hec_summary_row *row, hec_text *out) {
  bool first = true;
  if (row->by_node)
    hec_text_printf(out, "rows once per node in %" PRId64 " of %" PRId64 " layers in %" PRId64 " iteration%s",
                    row->choice.by_node, row->choice.n_layers, row->n, row->n == 1 ? "" : "s");
  for (int32_t r = 1; row->cuts && r <= HEC_DEGREE_MAX; r++) {
    if (row->choice.degree[r] == 0)
      continue;
    hec_text_printf(out, "%s%" PRId32 " in %" PRId64,
                    !first         ? ", "
                    : row->by_node ? "; degree "
                                   : "degree ",
                    r, row->choice.degree[r]);
    if (first)
      hec_text_printf(out, " of %" PRId64 " layers in %" PRId64 " iteration%s", row->choice.n_layers, row->n,
                      row->n == 1 ? "" : "s");
    first = false;
  }
  for (int32_t k = 1; row->routes && k < HEC_N_TOKEN_ROUTES; k++) {
    hec_text_printf(out, "; %s in ", hec_token_routes[k]->name);
    if (row->choice.route[k] > 0)
      hec_text_printf(out, "%" PRId64, row->choice.route[k]);
    else
      hec_text_add(out, "none");
  }
}

static bool chooses(const hec_summary_row *row) {
  return row->cuts || row->by_node;
}

static bool chose_alike(const hec_summary_row *a, const hec_summary_row *b) {
  return chooses(b) && strcmp(a->schedule, b->schedule) == 0 && memcmp(&a->choice, &b->choice, sizeof a->choice) == 0;
}

/* What schedules chose, once for all policies under which they chose alike. */
static void add_choices(const hec_summary *summary, hec_text *out) {
  bool some = false;
  for (int32_t i = 0; i < summary->n_rows; i++) {
    const hec_summary_row *row = &summary->rows[i];
    int32_t before = 0;
    while (before < i && !chose_alike(row, &summary->rows[before]))
      before++;
    if (!chooses(row) || before < i || row->choice.n_layers == 0)
      continue;
    HEC_SCOPED(hec_text) what = {0};
    describe_choice(row, &what);
    hec_text_printf(&what, " (%s", row->name);
    for (int32_t k = i + 1; k < summary->n_rows; k++)
      if (chose_alike(row, &summary->rows[k]))
        hec_text_printf(&what, ", %s", summary->rows[k].name);
    hec_text_add(&what, ")");
    hec_text_add(out, some ? "" : "\n");
    some = true;
    add_paragraph(row->schedule, what.data, out);
  }
}

/* Where the winner saves most against `other`, in words. */
void hec_summary_add_reason(const hec_summary_row *winner, const hec_summary_row *other, hec_text *out) {
  static const char *const what[HEC_N_BOOKS + 1] = {"less compute",
                                                    "less planning",
                                                    "less exposed token traffic",
                                                    "less exposed parameter traffic",
                                                    "less exposed gradient traffic",
                                                    "less exposed migration",
                                                    "less waiting for others"};
  int32_t max = -1;
  double max_s = 0;
  for (int32_t i = 0; i <= HEC_N_BOOKS; i++) {
    double a = i < HEC_N_BOOKS ? other->book_s[i] : other->wait_s,
           b = i < HEC_N_BOOKS ? winner->book_s[i] : winner->wait_s;
    double saved = a / other->stride - b / winner->stride;
    if (saved > max_s) {
      max = i;
      max_s = saved;
    }
  }
  if (max >= 0)
    hec_text_printf(out, ", mostly by %s (%.3f ms less per iteration, mean over ranks)", what[max], 1e3 * max_s);
}

void hec_summary_name_close(hec_summary *summary, int32_t best, hec_text *names) {
  double min = hec_summary_median(&summary->rows[best]);
  int32_t n = 0, *at = hec_malloc((size_t)summary->n_rows + 1, sizeof *at);
  for (int32_t i = 0; i < summary->n_rows; i++) {
    hec_summary_row *row = &summary->rows[i];
    if (i != best && !row->reference && hec_summary_fits(summary, row) &&
        hec_summary_median(row) / min - 1 <= HEC_SUMMARY_CLOSE)
      at[n++] = i;
  }
  hec_summary_sort(summary, at, n);
  for (int32_t i = 0; i < n && i < CLOSE_TOLD; i++) {
    hec_summary_row *row = &summary->rows[at[i]];
    hec_text_printf(names, "%s%s (%.1f %%)", i ? ", " : "", row->label,
                    hec_summary_percent(hec_summary_median(row) / min - 1));
  }
  if (n > CLOSE_TOLD)
    hec_text_printf(names, " and %" PRId32 " more", n - CLOSE_TOLD);
  free(at);
}

void hec_summary_add_close(hec_summary *summary, int32_t best, hec_text *out) {
  HEC_SCOPED(hec_text) names = {0};
  hec_summary_name_close(summary, best, &names);
  if (names.length > 0) {
    static const char title[] = "  Within 0.5 % of it:";
    hec_text_add(&names, ".");
    hec_text_add(out, title);
    hec_summary_add_wrapped(names.data, sizeof title - 1, 4, out);
  }
}

bool hec_summary_drops(const hec_summary *summary) {
  bool drops = false;
  for (int32_t i = 0; i < summary->n_rows; i++)
    drops = drops || summary->rows[i].dropped_share >= 0;
  return drops;
}

static void add_verdict(hec_summary *summary, hec_text *out) {
  int32_t best = hec_summary_winner(summary);
  if (best < 0) {
    hec_text_add(out, "\nNo policy fits into the memory of a device of this cluster (references do not count).\n");
    return;
  }
  hec_summary_row *winner = &summary->rows[best];
  hec_text_printf(out, "\nFastest that fits%s: %s (schedule %s), median %.3f ms.\n",
                  hec_summary_drops(summary) ? " and drops nothing" : "", winner->name, winner->schedule,
                  1e3 * hec_summary_median(winner));
  hec_summary_add_close(summary, best, out);
  int32_t kept = hec_summary_kept(summary, best), baseline = hec_summary_baseline(summary);
  if (kept >= 0 && kept != best)
    hec_text_printf(out, "  It is too little faster than %s to choose by: keep what you have.\n",
                    summary->rows[kept].label);
  if (baseline >= 0 && baseline != best) {
    hec_text_printf(out, "  %.2fx as fast as %s", hec_summary_vs_baseline(summary, best),
                    summary->rows[baseline].label);
    hec_summary_add_reason(winner, &summary->rows[baseline], out);
    hec_text_add(out, ".\n");
  }
  int32_t placed = hec_summary_placed(summary);
  if (placed >= 0 && placed != best)
    hec_text_printf(out, "  %.2fx as fast as %s, the placement of today.\n", hec_summary_vs_placed(summary, best),
                    summary->rows[placed].label);
  int32_t other = hec_summary_fastest_rearranging(summary);
  if (other >= 0 && !winner->rearranges)
    hec_text_printf(out, "  %.2fx as fast as %s, the fastest here that rearranges experts (by load or affinity).\n",
                    hec_summary_median(&summary->rows[other]) / hec_summary_median(winner), summary->rows[other].label);
  hec_summary_add_cross(summary, out);
}

void hec_summary_verdict(hec_summary *summary, hec_text *out) {
  (summary->execution ? hec_summary_execution_verdict : add_verdict)(summary, out);
}

/* Tables of a simulation are by time; an execution's rows stand in the order in which they were asked for, because small
 * differences are chance. */
void hec_summary_table(hec_summary *summary, hec_text *out) {
  bool executed = summary->execution != NULL;
  (executed ? hec_summary_execution_header : add_header)(summary, out);
  int width = name_width(summary, false), decimals = hec_summary_decimals(summary);
  int32_t *at = hec_malloc((size_t)summary->n_rows + 1, sizeof *at);
  for (int32_t i = 0; i < summary->n_rows; i++)
    at[i] = i;
  if (executed) {
    hec_summary_execution_times(summary, width, decimals, out);
  } else {
    hec_summary_sort(summary, at, summary->n_rows);
    add_times(summary, at, width, decimals, out);
  }
  hec_summary_execution_late(summary, out);
  add_books(summary, at, name_width(summary, true), decimals, out);
  free(at);
  add_degrees(summary, out);
  hec_summary_add_hidden(summary, out);
  hec_summary_add_attentions(summary, out);
  add_dropped(summary, out);
  add_choices(summary, out);
  add_notes(summary, out);
  hec_summary_verdict(summary, out);
}
