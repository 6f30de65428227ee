/* The cluster file of a calibration: structure and limits of the cluster that it started from, links as they were found,
 * curves, and what a reader must know to believe them. */
#include "tools/front/summary/summary_write.h"
#include "validate/calibrate/calibrate.h"

#include <math.h>
#include <string.h>

static const hec_link *first_of(const hec_cluster *c, hec_link_kind kind) {
  for (int32_t i = 0; i < c->n_links; i++)
    if (c->links[i].kind == kind)
      return &c->links[i];
  return NULL;
}

/* What `exchange` = a + b * law makes of a link: b slows it down, a comes on top of the latency where a transfer starts. */
static void write_link(hec_json_out *json, const hec_calibration *c, const hec_link *link, bool starts) {
  double latency_s = 1e-12 * (double)link->latency_ps * c->exchange.b + (starts ? c->exchange.a : 0);
  hec_json_double(json, "bandwidth", link->bandwidth / (c->exchange.b > 0 ? c->exchange.b : 1));
  hec_json_double(json, "latency", latency_s);
}

static void write_class(hec_json_out *json, const hec_calibration *c, const char *key, hec_link_kind kind,
                        bool starts) {
  const hec_link *link = first_of(c->options.base, kind);
  if (!link)
    return;
  hec_json_object(json, key);
  write_link(json, c, link, starts);
  hec_json_close(json);
}

static void write_device(hec_json_out *json, const hec_calibration *c) {
  const hec_device *d = &c->options.base->devices[0];
  hec_json_object(json, "device");
  hec_json_double(json, "flops", c->flops);
  hec_json_double(json, "flops_efficiency", 1);
  hec_json_double(json, "hbm_bandwidth", c->hbm_bandwidth);
  hec_json_double(json, "memory_bytes", d->memory_bytes);
  hec_json_double(json, "gemm_a_s", c->gemm_a_s);
  hec_json_double(json, "gemm_c_s", c->gemm_a_s);
  hec_json_int(json, "gemm_tile", d->gemm_tile);
  hec_json_double(json, "launch_s", c->launch_s);
  hec_json_double(json, "speed", c->speed);
  hec_json_double(json, "comm_share", c->comm_share);
  hec_json_close(json);
}

static void write_curve(hec_json_out *json, const hec_calibration *c, const hec_calibrated_curve *curve) {
  hec_json_object(json, NULL);
  hec_json_string(json, "kind", hec_curve_name[curve->kind]);
  hec_json_bool(json, "backward", curve->backward);
  if (hec_curve_has_rows(curve->kind))
    hec_json_double(json, "flops_per_row", curve->flops_per_row);
  if (hec_curve_has_ranks(curve->kind))
    hec_json_int(json, "ranks", c->options.n_ranks);
  hec_json_array(json, "points");
  for (int32_t i = 0; i < curve->fit.n_knots; i++) {
    hec_json_array(json, NULL);
    hec_json_double(json, NULL, curve->fit.x[i]);
    hec_json_double(json, NULL, curve->fit.y[i]);
    hec_json_close(json);
  }
  hec_json_close(json);
  hec_json_close(json);
}

static void write_residual(hec_json_out *json, const char *what, bool backward, int32_t n, double median, double p90) {
  hec_json_object(json, NULL);
  hec_json_string(json, "what", what);
  hec_json_bool(json, "backward", backward);
  hec_json_int(json, "observations", n);
  hec_json_double(json, "residual_median", median);
  hec_json_double(json, "residual_p90", p90);
  hec_json_close(json);
}

static void write_calibration(hec_json_out *json, const hec_calibration *c) {
  hec_json_object(json, "calibration");
  hec_json_int(json, "seed", (int64_t)c->options.seed);
  hec_json_int(json, "ranks", c->options.n_ranks); /* the cluster may have more devices */
  hec_json_double(json, "probe_s", c->probe_s > 0 ? c->probe_s : NAN);
  hec_json_int(json, "iterations", c->n_read);
  hec_json_double(json, "disturbed", c->disturbed);
  hec_json_bool(json, "contaminated", c->contaminated);
  hec_json_double(json, "level_within", c->level);
  hec_json_object(json, "error");
  hec_json_double(json, "median", c->own[0]);
  hec_json_array(json, "interval");
  hec_json_double(json, NULL, c->own[1]);
  hec_json_double(json, NULL, c->own[2]);
  hec_json_close(json);
  hec_json_close(json);
  hec_json_string(json, "links",
                  c->options.virtual_time ? "kept as given: virtual time measures no link"
                                          : "fitted: latency + scale * closed form of the links given");
  hec_json_array(json, "fits");
  for (int32_t i = 0; i < c->n_curves; i++) {
    const hec_calibrated_curve *curve = &c->curves[i];
    write_residual(json, hec_curve_name[curve->kind], curve->backward, curve->fit.n_observations,
                   curve->fit.residual_median, curve->fit.residual_p90);
  }
  if (c->exchange.n_observations > 0)
    write_residual(json, "exchange", false, c->exchange.n_observations, c->exchange.residual_median,
                   c->exchange.residual_p90);
  if (c->plan.n_observations > 0)
    write_residual(json, "plan", false, c->plan.n_observations, c->plan.residual_median, c->plan.residual_p90);
  hec_json_close(json);
  hec_json_array(json, "cases");
  for (int32_t i = 0; i < c->n_cases; i++)
    hec_json_string(json, NULL, c->cases[i].name);
  hec_json_close(json);
  hec_json_close(json);
}

static void write_machine(hec_json_out *json, const hec_calibration_machine *m) {
  hec_json_object(json, "machine");
  hec_summary_json_machine(m->unit, m->cpu, m->n_cores, m->blas, json);
  hec_json_string(json, "backend", m->backend);
  hec_json_string(json, "transport", m->transport);
  if (m->date)
    hec_json_string(json, "date", m->date);
  hec_json_close(json);
}

void hec_calibration_json(const hec_calibration *c, const hec_calibration_machine *machine, hec_text *out) {
  const hec_cluster *base = c->options.base;
  hec_json_out json = hec_json_begin(out, 2);
  hec_json_object(&json, NULL);
  hec_json_string(&json, "name", machine->name);
  hec_json_int(&json, "nodes", base->n_nodes);
  hec_json_int(&json, "devices_per_node", base->devices_per_node);
  hec_json_int(&json, "nics", base->nics);
  hec_json_bool(&json, "pxn", base->pxn);
  hec_json_bool(&json, "nic_through_port", base->nic_through_port);
  write_class(&json, c, "nvlink", HEC_LINK_PORT_OUT, true);
  write_class(&json, c, "nic", HEC_LINK_NIC_OUT, true);
  write_device(&json, c);
  hec_json_object(&json, "plan");
  hec_json_double(&json, "a_s", c->plan.a);
  hec_json_double(&json, "b_s", c->plan.b);
  hec_json_close(&json);
  hec_json_array(&json, "measured");
  for (int32_t i = 0; i < c->n_curves; i++)
    write_curve(&json, c, &c->curves[i]);
  hec_json_close(&json);
  write_machine(&json, machine);
  write_calibration(&json, c);
  hec_json_string(&json, "notes",
                  "Measured by hecate-validate calibrate for one model shape: curves hold for operations of that shape "
                  "(flops_per_row); every other shape is predicted by the law with the device's constants, which are "
                  "coarse.");
  hec_json_close(&json);
}
