/* The cluster file of a calibration. It has structure and limits of the cluster that it started from, links as they
 * were found, and curves. And what a reader must know to believe them. */
#include "validate/calibrate/calibrate.h"
#include "validate/doc.h"

#include <math.h>
#include <string.h>

static const hec_link *first_of(const hec_cluster *c, hec_link_kind kind) {
  for (int32_t i = 0; i < c->n_links; i++)
    if (c->links[i].kind == kind)
      return &c->links[i];
  return NULL;
}

/* What `exchange` = a + b * law makes of a link where a transfer starts: b slows it down, a comes on top of the latency. */
static void add_class(hec_doc *doc, const hec_calibration *c, const char *key, hec_link_kind kind) {
  const hec_link *link = first_of(c->options.base, kind);
  const hec_line *law = &c->exchange;
  if (link)
    HEC_ADD(doc, HEC_OBJECT(key, HEC_KEEP("bandwidth", link->bandwidth / (law->b > 0 ? law->b : 1)),
                            HEC_KEEP("latency", 1e-12 * (double)link->latency_ps * law->b + law->a)));
}

static void add_cluster(hec_doc *doc, const hec_calibration *c, const char *name) {
  const hec_cluster *base = c->options.base;
  const hec_device *d = &base->devices[0];
  HEC_ADD(doc, HEC_KEEP("name", name), HEC_KEEP("nodes", base->n_nodes),
          HEC_KEEP("devices_per_node", base->devices_per_node), HEC_KEEP("nics", base->nics),
          HEC_KEEP("pxn", base->pxn), HEC_KEEP("nic_through_port", base->nic_through_port));
  add_class(doc, c, "nvlink", HEC_LINK_PORT_OUT);
  add_class(doc, c, "nic", HEC_LINK_NIC_OUT);
  HEC_ADD(doc,
          HEC_OBJECT("device", HEC_KEEP("flops", c->flops), HEC_KEEP("flops_efficiency", 1.0),
                     HEC_KEEP("hbm_bandwidth", c->hbm_bandwidth), HEC_KEEP("memory_bytes", d->memory_bytes),
                     HEC_KEEP("gemm_a_s", c->gemm_a_s), HEC_KEEP("gemm_c_s", c->gemm_a_s),
                     HEC_KEEP("gemm_tile", d->gemm_tile), HEC_KEEP("launch_s", c->launch_s),
                     HEC_KEEP("speed", c->speed), HEC_KEEP("comm_share", c->comm_share)),
          HEC_OBJECT("plan", HEC_KEEP("a_s", c->plan.a), HEC_KEEP("b_s", c->plan.b)));
}

static void add_curve(hec_doc *doc, const hec_calibration *c, const hec_calibrated_curve *curve) {
  HEC_ROW(doc, HEC_KEEP("kind", hec_curve_name[curve->kind]), HEC_KEEP("backward", curve->backward));
  if (hec_curve_has_rows(curve->kind))
    HEC_ADD(doc, HEC_KEEP("flops_per_row", curve->flops_per_row));
  if (hec_curve_has_ranks(curve->kind))
    HEC_ADD(doc, HEC_KEEP("ranks", c->options.n_ranks));
  hec_doc_list(doc, "points");
  for (int32_t i = 0; i < curve->fit.n_knots; i++)
    HEC_ADD(doc, hec_value_pair(NULL, curve->fit.x[i], curve->fit.y[i]));
  hec_doc_end(doc);
}

enum { N_RESIDUAL = 5, RESIDUALS_MAX = HEC_SAMPLE_SETS_MAX + 2 };

/* member[N_RESIDUAL]: the room of its members. */
static hec_value residual(hec_value *member, const char *what, bool backward, int32_t n, double median, double p90) {
  const hec_value members[] = {HEC_KEEP("what", what), HEC_KEEP("backward", backward), HEC_KEEP("observations", n),
                               HEC_KEEP("residual_median", median), HEC_KEEP("residual_p90", p90)};
  memcpy(member, members, sizeof members);
  return hec_value_object(NULL, member, N_RESIDUAL);
}

static void add_calibration(hec_doc *doc, const hec_calibration *c) {
  hec_value member[RESIDUALS_MAX][N_RESIDUAL], fits[RESIDUALS_MAX];
  const char **cases = HEC_NEW(&doc->arena, const char *, c->n_cases + 1);
  const hec_line *lines[] = {&c->exchange, &c->plan};
  static const char *const names[] = {"exchange", "plan"};
  int32_t n = 0;
  for (; n < c->n_curves; n++) {
    const hec_fit *fit = &c->curves[n].fit;
    fits[n] = residual(member[n], hec_curve_name[c->curves[n].kind], c->curves[n].backward, fit->n_observations,
                       fit->residual_median, fit->residual_p90);
  }
  for (int32_t i = 0; i < 2; i++)
    if (lines[i]->n_observations > 0) {
      fits[n] = residual(member[n], names[i], false, lines[i]->n_observations, lines[i]->residual_median,
                         lines[i]->residual_p90);
      n++;
    }
  for (int32_t i = 0; i < c->n_cases; i++)
    cases[i] = c->cases[i].name;
  HEC_ADD(doc,
          HEC_OBJECT(
              "calibration", HEC_KEEP("seed", (int64_t)c->options.seed),
              HEC_KEEP("ranks", c->options.n_ranks), /* the cluster may have more devices */
              HEC_KEEP("probe_s", c->probe_s > 0 ? c->probe_s : NAN), HEC_KEEP("iterations", c->n_read),
              HEC_KEEP("disturbed", c->disturbed), HEC_KEEP("contaminated", c->contaminated),
              HEC_KEEP("level_within", c->level),
              HEC_OBJECT("error", HEC_KEEP("median", c->own[0]), hec_value_pair("interval", c->own[1], c->own[2])),
              HEC_KEEP("links", c->options.virtual_time ? "kept as given: virtual time measures no link"
                                                        : "fitted: latency + scale * closed form of the links given"),
              hec_value_list("fits", fits, n), hec_value_texts("cases", cases, c->n_cases)));
}

static void add_machine(hec_doc *doc, const hec_calibration_machine *m) {
  bool devices = m->unit && strcmp(m->unit, "device") == 0;
  const hec_value machine[] = {HEC_KEEP(devices ? "device" : "cpu", m->cpu),
                               HEC_KEEP(devices ? "devices" : "cores", m->n_cores),
                               HEC_KEEP(devices ? "library" : "blas", m->blas),
                               HEC_KEEP("backend", m->backend),
                               HEC_KEEP("transport", m->transport),
                               HEC_KEEP("date", m->date)};
  HEC_ADD(doc, hec_value_object("machine", machine, m->date ? 6 : 5));
}

typedef struct {
  const hec_calibration *calibration;
  const hec_calibration_machine *machine;
} both;

static void report(const void *of, hec_doc *doc) {
  const hec_calibration *c = ((const both *)of)->calibration;
  const hec_calibration_machine *machine = ((const both *)of)->machine;
  add_cluster(doc, c, machine->name);
  hec_doc_table(doc, "measured", NULL);
  for (int32_t i = 0; i < c->n_curves; i++)
    add_curve(doc, c, &c->curves[i]);
  hec_doc_end(doc);
  add_machine(doc, machine);
  add_calibration(doc, c);
  HEC_ADD(doc,
          HEC_KEEP("notes", "Measured by hecate-validate calibrate for one model shape: curves hold for operations of "
                            "that shape (flops_per_row); every other shape is predicted by the law with the device's "
                            "constants, which are coarse."));
}

void hec_calibration_json(const hec_calibration *c, const hec_calibration_machine *machine, hec_text *out) {
  hec_doc_write(report, &(const both){c, machine}, HEC_DOC_JSON, 2, out);
}
