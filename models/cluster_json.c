/* The JSON form of a cluster (presets and files): see cluster.h. Overrides are applied to the links and devices that
 * the classes made, in file order. */
#include "models/cluster_spec.h"

#include "models/json.h"

#include <string.h>

/* Shares by message size; `value` may be NULL: none. */
static hec_status read_shares(const hec_json *json, const hec_json_value *value, hec_arena *arena,
                              hec_link_spec *link) {
  if (!value)
    return HEC_OK;
  int32_t n = hec_json_is_array(value) ? hec_json_length(value) : 0;
  if (n < 1 || n > HEC_LINK_SHARES_MAX)
    return hec_json_error(json, value, "an array of 1 to 32 pairs [bytes, share]");
  hec_link_share *shares = HEC_NEW(arena, hec_link_share, n), last = {0, 1};
  for (const hec_json_value *v = hec_json_first(value); v; v = hec_json_next(v)) {
    const hec_json_value *bytes = hec_json_is_array(v) ? hec_json_first(v) : NULL;
    const hec_json_value *share = bytes ? hec_json_next(bytes) : NULL;
    if (!share || hec_json_next(share) || !hec_json_is_number(bytes) || !hec_json_is_number(share))
      return hec_json_error(json, v, "a pair of numbers [bytes, share]");
    hec_link_share next = {hec_json_number(bytes), hec_json_number(share)};
    if (!(next.bytes > last.bytes && next.bytes <= HEC_MEMORY_MAX))
      return hec_json_error(json, bytes, "bytes above 0, ascending, at most 1e18");
    if (!(next.share >= HEC_SIZE_SHARE_MIN && next.share <= 1))
      return hec_json_error(json, share, "a share from 0.001 to 1");
    if (!(next.bytes / next.share > last.bytes / last.share))
      return hec_json_error(json, share, "bytes / share rising: more bytes never take less time");
    last = shares[link->n_shares++] = next;
  }
  link->shares = shares;
  return HEC_OK;
}

static hec_status read_bandwidth(const hec_json *json, const hec_json_value *object, hec_arena *arena,
                                 hec_link_spec *link) {
  static const char *const known[] = {"nodes_per_leaf", "bandwidth",           "latency",
                                      "efficiency",     "efficiency_by_bytes", NULL};
  HEC_TRY(hec_json_only(json, object, known));
  HEC_TRY(hec_json_want_double(json, object, "bandwidth", HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, &link->bandwidth));
  HEC_TRY(hec_json_double_or(json, object, "latency", 0, HEC_LATENCY_MAX, link->latency_s, &link->latency_s));
  if (hec_json_get(object, "efficiency") || hec_json_get(object, "efficiency_by_bytes")) { /* not the GPU's */
    link->efficiency = 1;
    link->n_shares = 0;
    link->by_laws = false;
  }
  HEC_TRY(hec_json_double_or(json, object, "efficiency", HEC_SHARE_MIN, 1, link->efficiency, &link->efficiency));
  return read_shares(json, hec_json_get(object, "efficiency_by_bytes"), arena, link);
}

/* Optional member `key` of the root. */
static hec_status read_link(const hec_json *json, const hec_json_value *root, const char *key, hec_arena *arena,
                            hec_link_spec *link) {
  const hec_json_value *object = hec_json_get(root, key);
  if (!object)
    return HEC_OK;
  HEC_TRY(read_bandwidth(json, object, arena, link));
  const hec_json_value *extra = hec_json_get(object, "nodes_per_leaf");
  return extra && strcmp(key, "leaf") != 0 ? hec_json_error(json, extra, "nodes_per_leaf only in \"leaf\"") : HEC_OK;
}

/* A GPU's laws have what a few constants have else; in_step is theirs. */
static hec_status check_laws(const hec_json *json, const hec_json_value *object, const hec_device *device) {
  static const char *const of_peak[] = {"flops",          "flops_efficiency", "hbm_bandwidth",
                                        "hbm_efficiency", "gemm_a_s",         "gemm_c_s",
                                        "gemm_tile",      "launch_s",         NULL};
  const hec_json_value *in_step = hec_json_get(object, "in_step");
  if (in_step && !device->gpu)
    return hec_json_error(json, in_step, "in_step with \"gpu\" only");
  for (int i = 0; device->gpu && of_peak[i]; i++)
    if (hec_json_get(object, of_peak[i]))
      return hec_json_error(json, hec_json_get(object, of_peak[i]),
                            "none of flops, hbm, gemm and launch_s beside \"gpu\", whose laws have them");
  return HEC_OK;
}

/* Fields present replace what `device` has; hbm_efficiency applies to an hbm_bandwidth given beside it. */
static hec_status read_device(const hec_json *json, const hec_json_value *object, hec_device *device) {
  static const char *const known[] = {"device",       "flops",    "flops_efficiency", "hbm_bandwidth", "hbm_efficiency",
                                      "memory_bytes", "gemm_a_s", "gemm_c_s",         "gemm_tile",     "launch_s",
                                      "comm_share",   "speed",    "skew_s",           "in_step",       NULL};
  double hbm_efficiency = 1;
  int64_t tile = 0;
  const hec_json_value *hbm = hec_json_get(object, "hbm_bandwidth"), *share = hec_json_get(object, "hbm_efficiency");
  HEC_TRY(hec_json_only(json, object, known));
  HEC_TRY(check_laws(json, object, device));
  HEC_TRY(hec_json_double_or(json, object, "flops", HEC_FLOPS_MIN, HEC_FLOPS_MAX, device->flops, &device->flops));
  HEC_TRY(hec_json_double_or(json, object, "flops_efficiency", HEC_SHARE_MIN, 1, device->flops_efficiency,
                             &device->flops_efficiency));
  HEC_TRY(hec_json_double_or(json, object, "hbm_bandwidth", HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, device->hbm_bandwidth,
                             &device->hbm_bandwidth));
  HEC_TRY(hec_json_double_or(json, object, "hbm_efficiency", HEC_SHARE_MIN, 1, 1, &hbm_efficiency));
  if (share && !hbm)
    return hec_json_error(json, share, "hbm_bandwidth beside hbm_efficiency");
  device->hbm_bandwidth *= hbm_efficiency;
  HEC_TRY(
      hec_json_double_or(json, object, "memory_bytes", 1, HEC_MEMORY_MAX, device->memory_bytes, &device->memory_bytes));
  HEC_TRY(hec_json_double_or(json, object, "gemm_a_s", 0, HEC_SECONDS_MAX, device->gemm_a_s, &device->gemm_a_s));
  HEC_TRY(hec_json_double_or(json, object, "gemm_c_s", 0, HEC_SECONDS_MAX, device->gemm_c_s, &device->gemm_c_s));
  HEC_TRY(hec_json_int_or(json, object, "gemm_tile", 1, HEC_TILE_MAX, device->gemm_tile, &tile));
  device->gemm_tile = (int32_t)tile;
  HEC_TRY(hec_json_double_or(json, object, "launch_s", 0, HEC_SECONDS_MAX, device->launch_s, &device->launch_s));
  HEC_TRY(hec_json_double_or(json, object, "comm_share", 0, 0.99, device->comm_share, &device->comm_share));
  HEC_TRY(hec_json_double_or(json, object, "skew_s", 0, HEC_SECONDS_MAX, device->skew_s, &device->skew_s));
  HEC_TRY(hec_json_double_or(json, object, "in_step", 1, HEC_IN_STEP_MAX, device->in_step, &device->in_step));
  hec_cluster_sum_up(device);
  return hec_json_double_or(json, object, "speed", HEC_SHARE_MIN, 1000, device->speed, &device->speed);
}

static hec_status read_common_device(const hec_json *json, const hec_json_value *root, hec_device *device) {
  const hec_json_value *object = hec_json_get(root, "device"), *gpu = hec_json_get(root, "gpu");
  if (!object && gpu)
    return HEC_OK;
  if (!object)
    return hec_json_error(json, root, "a member \"device\" or \"gpu\"");
  if (gpu)
    return read_device(json, object, device);
  HEC_TRY(hec_json_want_double(json, object, "flops", HEC_FLOPS_MIN, HEC_FLOPS_MAX, &device->flops));
  HEC_TRY(hec_json_want_double(json, object, "memory_bytes", 1, HEC_MEMORY_MAX, &device->memory_bytes));
  return read_device(json, object, device);
}

static hec_status read_plan(const hec_json *json, const hec_json_value *root, hec_cluster_spec *spec) {
  static const char *const known[] = {"a_s", "b_s", NULL};
  const hec_json_value *object = hec_json_get(root, "plan");
  if (!object)
    return HEC_OK;
  HEC_TRY(hec_json_only(json, object, known));
  HEC_TRY(hec_json_double_or(json, object, "a_s", 0, HEC_SECONDS_MAX, spec->plan_a_s, &spec->plan_a_s));
  return hec_json_double_or(json, object, "b_s", 0, HEC_SECONDS_MAX, spec->plan_b_s, &spec->plan_b_s);
}

hec_status hec_p2p_read(const hec_json *json, const hec_json_value *root, hec_p2p *p2p) {
  static const char *const known[] = {"channels", "channels_per_peer", "batch", "ll_bytes",
                                      "ll_share", "chunk_bytes",       NULL};
  const hec_json_value *object = hec_json_get(root, "p2p");
  int64_t channels, each, batch, ll_bytes, chunk;
  double ll_share;
  if (!object)
    return HEC_OK;
  HEC_TRY(hec_json_only(json, object, known));
  HEC_TRY(hec_json_int_or(json, object, "channels", 1, HEC_CHANNELS_MAX, p2p->channels, &channels));
  HEC_TRY(hec_json_int_or(json, object, "channels_per_peer", 1, HEC_CHANNELS_MAX, p2p->channels_per_peer, &each));
  HEC_TRY(hec_json_int_or(json, object, "batch", 1, HEC_DEVICES_MAX, p2p->batch, &batch));
  HEC_TRY(hec_json_int_or(json, object, "ll_bytes", 0, HEC_LL_BYTES_MAX, p2p->ll_bytes, &ll_bytes));
  HEC_TRY(hec_json_double_or(json, object, "ll_share", HEC_SIZE_SHARE_MIN, 1, p2p->ll_share, &ll_share));
  HEC_TRY(hec_json_int_or(json, object, "chunk_bytes", 0, HEC_CHUNK_BYTES_MAX, p2p->chunk_bytes, &chunk));
  if (channels % each != 0) {
    const hec_json_value *given = hec_json_get(object, "channels_per_peer");
    return hec_json_error(json, given ? given : hec_json_get(object, "channels"),
                          "channels_per_peer (4 unless given) to divide channels (32 unless given)");
  }
  *p2p = (hec_p2p){.channels = (int32_t)channels,
                   .channels_per_peer = (int32_t)each,
                   .batch = (int32_t)batch,
                   .ll_bytes = (int32_t)ll_bytes,
                   .ll_share = ll_share,
                   .chunk_bytes = (int32_t)chunk};
  return HEC_OK;
}

/* A device's file is relative to the cluster's file, `origin`. */
static hec_status read_gpu(const hec_json *json, const char *origin, hec_arena *arena, hec_cluster_spec *spec) {
  const hec_json_value *root = hec_json_root(json);
  const char *name;
  if (!hec_json_get(root, "gpu"))
    return HEC_OK;
  HEC_TRY(hec_json_want_text(json, root, "gpu", &name));
  return hec_cluster_spec_take_gpu(spec, name, origin, arena);
}

static hec_status read_spec(const hec_json *json, const char *origin, hec_arena *arena, hec_cluster_spec *spec) {
  const hec_json_value *root = hec_json_root(json);
  static const char *const known[] = {"name",        "nodes",    "devices_per_node",
                                      "nics",        "pxn",      "nic_through_port",
                                      "nvlink",      "nic",      "leaf",
                                      "device",      "devices",  "links",
                                      "plan",        "measured", "machine",
                                      "calibration", "p2p",      "gpu",
                                      "cores",       NULL};
  HEC_TRY(hec_json_only(json, root, known));
  if (hec_json_get(root, "name")) {
    const char *name;
    HEC_TRY(hec_json_want_text(json, root, "name", &name));
    hec_name_copy(spec->name, sizeof spec->name, name);
  }
  HEC_TRY(hec_json_want_int(json, root, "nodes", 1, HEC_DEVICES_MAX, &spec->n_nodes));
  HEC_TRY(hec_json_want_int(json, root, "devices_per_node", 1, HEC_DEVICES_MAX, &spec->devices_per_node));
  HEC_TRY(hec_json_int_or(json, root, "nics", 1, HEC_DEVICES_MAX, 1, &spec->nics));
  HEC_TRY(hec_json_double_or(json, root, "cores", 0, HEC_DEVICES_MAX, 0, &spec->cores));
  HEC_TRY(hec_json_bool_or(json, root, "pxn", false, &spec->pxn));
  HEC_TRY(hec_json_bool_or(json, root, "nic_through_port", false, &spec->nic_through_port));
  HEC_TRY(read_gpu(json, origin, arena, spec));
  HEC_TRY(read_link(json, root, "nvlink", arena, &spec->port));
  HEC_TRY(read_link(json, root, "nic", arena, &spec->nic));
  HEC_TRY(read_link(json, root, "leaf", arena, &spec->leaf));
  const hec_json_value *leaf = hec_json_get(root, "leaf");
  if (leaf)
    HEC_TRY(hec_json_want_int(json, leaf, "nodes_per_leaf", 1, HEC_DEVICES_MAX, &spec->nodes_per_leaf));
  HEC_TRY(read_common_device(json, root, &spec->device));
  HEC_TRY(hec_p2p_read(json, root, &spec->p2p));
  return read_plan(json, root, spec);
}

static hec_status override_devices(const hec_json *json, const hec_json_value *root, hec_cluster *cluster) {
  const hec_json_value *list = hec_json_get(root, "devices");
  if (list && !hec_json_is_array(list))
    return hec_json_error(json, list, "an array of objects");
  for (const hec_json_value *v = list ? hec_json_first(list) : NULL; v; v = hec_json_next(v)) {
    int64_t device;
    HEC_TRY(hec_json_want_int(json, v, "device", 0, cluster->n_devices - 1, &device));
    HEC_TRY(read_device(json, v, &cluster->devices[device]));
  }
  return HEC_OK;
}

/* Which link an override means: the place of (kind, index) in the numbering of cluster.c. */
static hec_status find_link(const hec_json *json, const hec_json_value *v, const hec_cluster *c, hec_link **link) {
  const char *kind;
  int which = 0;
  int32_t first;
  int64_t index = 0, nic = 0;
  HEC_TRY(hec_json_want_text(json, v, "kind", &kind));
  while (which < HEC_N_LINK_KINDS && strcmp(kind, hec_link_kind_name[which]) != 0)
    which++;
  if (which == HEC_N_LINK_KINDS)
    return hec_json_error(json, hec_json_get(v, "kind"), "port_out, port_in, nic_out, nic_in, leaf_up or leaf_down");
  int32_t n = hec_cluster_kind(c, (hec_link_kind)which, &first);
  if (n == 0)
    return hec_json_error(json, v, "a kind of link that this cluster has");
  if (which < HEC_LINK_NIC_OUT) {
    HEC_TRY(hec_json_want_int(json, v, "device", 0, n - 1, &index));
  } else if (which < HEC_LINK_LEAF_UP) {
    HEC_TRY(hec_json_want_int(json, v, "node", 0, n / c->nics - 1, &index));
    HEC_TRY(hec_json_int_or(json, v, "nic", 0, c->nics - 1, 0, &nic));
    index = index * c->nics + nic;
  } else {
    HEC_TRY(hec_json_want_int(json, v, "leaf", 0, n - 1, &index));
  }
  *link = &c->links[first + index];
  return HEC_OK;
}

static hec_status override_links(const hec_json *json, const hec_json_value *root, hec_cluster *cluster) {
  static const char *const known[] = {"kind",      "device",  "node",       "nic", "leaf",
                                      "bandwidth", "latency", "efficiency", NULL};
  const hec_json_value *list = hec_json_get(root, "links");
  if (list && !hec_json_is_array(list))
    return hec_json_error(json, list, "an array of objects");
  for (const hec_json_value *v = list ? hec_json_first(list) : NULL; v; v = hec_json_next(v)) {
    hec_link *link = NULL;
    double efficiency, latency_s;
    HEC_TRY(hec_json_only(json, v, known));
    HEC_TRY(find_link(json, v, cluster, &link));
    efficiency = link->bandwidth / link->nominal;
    latency_s = (double)link->latency_ps * 1e-12;
    HEC_TRY(
        hec_json_double_or(json, v, "bandwidth", HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, link->nominal, &link->nominal));
    HEC_TRY(hec_json_double_or(json, v, "efficiency", HEC_SHARE_MIN, 1, efficiency, &efficiency));
    HEC_TRY(hec_json_double_or(json, v, "latency", 0, HEC_LATENCY_MAX, latency_s, &latency_s));
    link->bandwidth = link->nominal * efficiency;
    link->latency_ps = (int64_t)(latency_s * 1e12 + 0.5);
  }
  return HEC_OK;
}

/* ---- Measured curves ---- */

static hec_status read_points(const hec_json *json, const hec_json_value *v, hec_arena *arena, hec_curve *curve) {
  const hec_json_value *points = hec_json_get(v, "points");
  if (!points || !hec_json_is_array(points) || hec_json_length(points) < 1 ||
      hec_json_length(points) > HEC_CURVE_POINTS_MAX)
    return hec_json_error(json, points ? points : v, "\"points\": an array of 1 to 64 pairs [size, seconds]");
  double *x = HEC_NEW(arena, double, hec_json_length(points)), *s = HEC_NEW(arena, double, hec_json_length(points));
  double last_x = 0, last_s = 0;
  for (const hec_json_value *p = hec_json_first(points); p; p = hec_json_next(p)) {
    const hec_json_value *size = hec_json_is_array(p) ? hec_json_first(p) : NULL;
    const hec_json_value *seconds = size ? hec_json_next(size) : NULL;
    if (!seconds || hec_json_next(seconds) || !hec_json_is_number(size) || !hec_json_is_number(seconds))
      return hec_json_error(json, p, "a pair of numbers [size, seconds]");
    if (!(hec_json_number(size) > last_x && hec_json_number(size) <= HEC_MEMORY_MAX))
      return hec_json_error(json, size, "sizes above 0, ascending, at most 1e18");
    if (!(hec_json_number(seconds) >= last_s && hec_json_number(seconds) <= 1e6))
      return hec_json_error(json, seconds, "seconds from 0 to 1e6, not decreasing");
    x[curve->n] = last_x = hec_json_number(size);
    s[curve->n++] = last_s = hec_json_number(seconds);
  }
  curve->x = x;
  curve->seconds = s;
  return HEC_OK;
}

static hec_status read_curve(const hec_json *json, const hec_json_value *v, hec_arena *arena, hec_curve *curve) {
  static const char *const known[] = {"kind", "backward", "flops_per_row", "ranks", "points", NULL};
  const char *kind;
  int which = 0;
  int64_t ranks = 0;
  *curve = (hec_curve){0};
  HEC_TRY(hec_json_only(json, v, known));
  HEC_TRY(hec_json_want_text(json, v, "kind", &kind));
  while (which < HEC_N_CURVE_KINDS && strcmp(kind, hec_curve_name[which]) != 0)
    which++;
  if (which == HEC_N_CURVE_KINDS)
    return hec_json_error(json, hec_json_get(v, "kind"), "a kind of models/curve.h, such as \"expert\"");
  curve->kind = (hec_curve_kind)which;
  HEC_TRY(hec_json_bool_or(json, v, "backward", false, &curve->backward));
  if (hec_curve_has_rows(curve->kind))
    HEC_TRY(hec_json_want_double(json, v, "flops_per_row", HEC_FLOPS_MIN, HEC_FLOPS_MAX, &curve->flops_per_row));
  if (hec_curve_has_ranks(curve->kind))
    HEC_TRY(hec_json_want_int(json, v, "ranks", 1, HEC_DEVICES_MAX, &ranks));
  curve->ranks = (int32_t)ranks;
  return read_points(json, v, arena, curve);
}

static hec_status read_measured(const hec_json *json, const hec_json_value *root, hec_arena *arena,
                                hec_cluster *cluster) {
  const hec_json_value *list = hec_json_get(root, "measured");
  if (!list)
    return HEC_OK;
  if (!hec_json_is_array(list) || hec_json_length(list) > HEC_CURVES_MAX)
    return hec_json_error(json, list, "an array of at most 4096 curves");
  hec_curve *curves = HEC_NEW(arena, hec_curve, hec_json_length(list));
  hec_curves *of_devices = HEC_NEW(arena, hec_curves, 1);
  for (const hec_json_value *v = hec_json_first(list); v; v = hec_json_next(v))
    HEC_TRY(read_curve(json, v, arena, &curves[cluster->measured.n++]));
  cluster->measured.curves = curves;
  *of_devices = cluster->measured;
  for (int32_t i = 0; i < cluster->n_devices; i++)
    cluster->devices[i].measured = of_devices;
  return HEC_OK;
}

static hec_status read_cluster(const hec_json *json, const char *origin, hec_arena *arena, hec_cluster *cluster) {
  hec_cluster_spec spec = hec_cluster_spec_default();
  hec_cluster built;
  const char *base = strrchr(origin, '/');
  hec_name_copy(spec.name, sizeof spec.name, base ? base + 1 : origin);
  HEC_TRY(read_spec(json, origin, arena, &spec));
  HEC_TRY(hec_cluster_spec_check(&spec, origin));
  hec_cluster_build(&spec, arena, &built);
  HEC_TRY(override_devices(json, hec_json_root(json), &built));
  HEC_TRY(override_links(json, hec_json_root(json), &built));
  HEC_TRY(read_measured(json, hec_json_root(json), arena, &built));
  *cluster = built;
  return HEC_OK;
}

hec_status hec_cluster_parse_json(const char *text, const char *origin, hec_arena *arena, hec_cluster *cluster) {
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_parse(text, strlen(text), origin, &json));
  return read_cluster(json, origin, arena, cluster);
}

hec_status hec_cluster_read(const char *path, hec_arena *arena, hec_cluster *cluster) {
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_read(path, &json));
  return read_cluster(json, path, arena, cluster);
}
