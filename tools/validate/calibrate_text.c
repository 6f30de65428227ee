/* A calibration for people: what each kind of operation takes at a few sizes, how well the fit describes what was
 * measured, links, planning, pace. */
#include "tools/validate/session_report.h"

#include <inttypes.h>
#include <math.h>

enum { SHOWN_MAX = 5 };

/* Sizes of a kind: rows of a GEMM, bytes, or the microseconds that the links' closed form says. */
static const char *unit_of(hec_curve_kind kind) {
  return hec_curve_has_rows(kind) ? "rows" : hec_curve_is_exchange(kind) ? "us" : "bytes";
}

static void add_size(hec_text *out, double size, hec_curve_kind kind) {
  static const char *const units[] = {"", "K", "M", "G"};
  int unit = 0;
  if (hec_curve_is_exchange(kind))
    size *= 1e6;
  for (; !hec_curve_has_rows(kind) && size >= 1e3 && unit < 3; unit++)
    size /= 1e3;
  hec_text_printf(out, "%.3g%s", size, units[unit]);
}

/* First, last and a few points between, "size: ms". */
static void add_points(const hec_calibrated_curve *curve, hec_text *out) {
  const hec_fit *f = &curve->fit;
  int32_t shown = f->n_knots < SHOWN_MAX ? f->n_knots : SHOWN_MAX;
  for (int32_t i = 0; i < shown; i++) {
    int32_t at = shown > 1 ? (int32_t)((int64_t)i * (f->n_knots - 1) / (shown - 1)) : 0;
    hec_text_add(out, i ? "  " : "");
    add_size(out, f->x[at], curve->kind);
    hec_text_printf(out, ": %.3g", 1e3 * f->y[at]);
  }
}

static void add_percent(hec_text *out, double share) {
  if (isfinite(share))
    hec_text_printf(out, "%6.1f %%", 100 * share);
  else
    hec_text_printf(out, "%8s", "-");
}

static void add_curve(const hec_calibrated_curve *curve, hec_text *out) {
  hec_text_printf(out, "%-17s %-8s  %8" PRId32, hec_curve_name[curve->kind], curve->backward ? "backward" : "forward",
                  curve->fit.n_observations);
  add_percent(out, curve->fit.residual_median);
  add_percent(out, curve->fit.residual_p90);
  hec_text_printf(out, "  %-5s ", unit_of(curve->kind));
  add_points(curve, out);
  hec_text_add(out, "\n");
}

static void add_curves(const hec_calibration *c, hec_text *out) {
  hec_text_printf(out, "\n%-17s %-8s  %8s %15s\n", "", "", "measured", "fit is off by");
  hec_text_printf(out, "%-17s %-8s  %8s %7s %7s  %s\n", "operation", "pass", "times", "median", "p90",
                  "size: its time, ms");
  for (int32_t kind = 0; kind < HEC_N_CURVE_KINDS; kind++)
    for (int32_t backward = 0; backward < 2; backward++)
      for (int32_t i = 0; i < c->n_curves; i++)
        if (c->curves[i].kind == (hec_curve_kind)kind && c->curves[i].backward == (backward == 1))
          add_curve(&c->curves[i], out);
  hec_text_add(out,
               "size: rows of a GEMM; bytes; of exchanges the microseconds that they would take on the links below\n");
}

static void add_residual(const hec_line *line, hec_text *out) {
  if (line->n_observations == 0)
    return;
  hec_text_printf(out, "; %" PRId32 " measured, fit off by %.1f %% (median), %.1f %% (p90)", line->n_observations,
                  100 * line->residual_median, 100 * line->residual_p90);
}

/* `alone`: what was measured of the class by itself. */
static void add_link(const hec_session *s, hec_link_kind kind, const hec_link_growth *alone, const char *name,
                     hec_text *out) {
  const hec_cluster *base = s->options.calibrate.base, *found = &s->fitted;
  const hec_line line = alone->n > 0 ? hec_link_line(alone) : s->calibration.exchange;
  for (int32_t i = 0; i < base->n_links; i++)
    if (base->links[i].kind == kind) {
      hec_text_printf(out, "links     %s %.4g GB/s, %.3g us (%s %.4g GB/s, %.3g us)", name,
                      1e-9 * found->links[i].bandwidth, 1e-6 * (double)found->links[i].latency_ps,
                      s->calibration.options.virtual_time ? "as given:" : "started from",
                      1e-9 * base->links[i].bandwidth, 1e-6 * (double)base->links[i].latency_ps);
      add_residual(&line, out);
      hec_text_add(out, alone->n > 0 && !alone->steady
                            ? "; no exchange was so long that time grew with bytes, so the rate is a guess\n"
                            : "\n");
      return;
    }
}

static void add_rest(const hec_session_report *r, hec_text *out) {
  const hec_session *s = r->session;
  const hec_calibration *c = &s->calibration;
  hec_text_add(out, "\n");
  if (c->options.n_ranks > 1) {
    if (c->options.base->devices_per_node > 1)
      add_link(s, HEC_LINK_PORT_OUT, &c->known.port, "in a node", out);
    if (c->options.base->n_nodes > 1)
      add_link(s, HEC_LINK_NIC_OUT, &c->known.nic, "between nodes", out);
  }
  hec_text_printf(out, "planning  %.3g us + %.3g ns per unit of work", 1e6 * c->plan.a, 1e9 * c->plan.b);
  add_residual(&c->plan, out);
  hec_text_printf(out,
                  "\nothers    %.4g GFLOP/s, %.3g us a GEMM, %.3g GB/s of memory: for shapes that were not measured\n",
                  1e-9 * c->flops, 1e6 * c->gemm_a_s, 1e-9 * c->hbm_bandwidth);
  hec_text_printf(out,
                  "pace      %.1f %% of these speeds is kept in whole iterations: ranks wait for whoever is late\n",
                  100 * c->speed);
  hec_text_add(out, "disturbed ");
  hec_report_add_disturbed(r, out);
  hec_text_printf(out, "\nfitted on %" PRId32 " cases, loads made up from seed %" PRIu64 ":\n", c->n_cases,
                  c->options.seed);
  for (int32_t i = 0; i < c->n_cases; i++)
    hec_text_printf(out, "          %s\n", c->cases[i].name);
}

static void add_verdict(const hec_session_report *r, hec_text *out) {
  const hec_calibration *c = &r->session->calibration;
  if (isfinite(c->own[0])) {
    hec_text_printf(out, "\nIts own cases are predicted within %.1f %% ", 100 * c->own[0]);
    hec_report_add_interval(out, (hec_interval){c->own[1], c->own[2]});
    hec_text_add(out, " (median; in brackets: 95 % interval)");
  } else {
    hec_text_add(out, "\nHow far it can be trusted is not known: one round does not say; give more time with --within");
  }
  if (isfinite(c->level))
    hec_text_printf(out, "; all times together are known within %.1f %%", 100 * c->level);
  hec_text_add(out, ".\n");
  if (hec_summary_on_devices(r->head->execution))
    hec_text_add(out, "For predictions of this model shape on this machine. Devices are not probed: whether anything "
                      "else used them is not known.\n");
  else if (c->contaminated)
    hec_text_printf(out,
                    "Mind: %.0f %% of the iterations were disturbed; a quiet machine gives a better calibration.\n",
                    100 * c->disturbed);
  else
    hec_text_add(out, "Good for predictions of this model shape on this machine.\n");
}

void hec_calibrate_text(const hec_session_report *r, hec_text *out) {
  const hec_session *s = r->session;
  hec_text_printf(out, "%s: what operations of this shape take on this machine, ", r->head->tool);
  hec_report_add_rounds(r, out);
  hec_text_add(out, "\n");
  hec_summary_execution_place(r->head, out);
  hec_summary_execution_mind(r->head, out);
  add_curves(&s->calibration, out);
  add_rest(r, out);
  add_verdict(r, out);
}
