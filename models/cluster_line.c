/* The one-line form of a cluster: "NxM key=value ...". One table row per key; two passes over the line: gpu= comes first, wherever
 * it stands, so that what is given beside it counts. */
#include "models/cluster_spec.h"

#include "models/gpu.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { RATE, LINK, NUMBER, SECONDS, COUNT, TILE, SWITCH, PLAN, P2P, SLOW, GPU } value_kind;

typedef struct {
  const char *key;
  value_kind kind;
  double min, max;
  size_t offset; /* in hec_cluster_spec */
} line_key;

#define FIELD(name) offsetof(hec_cluster_spec, name)
static const line_key keys[] = {
    {"nvlink", LINK, HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, FIELD(port)},
    {"nic", LINK, HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, FIELD(nic)},
    {"uplink", LINK, HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, FIELD(leaf)},
    {"flops", RATE, HEC_FLOPS_MIN, HEC_FLOPS_MAX, FIELD(device.flops)},
    {"mem", RATE, 1, HEC_MEMORY_MAX, FIELD(device.memory_bytes)},
    {"hbm", RATE, HEC_BANDWIDTH_MIN, HEC_BANDWIDTH_MAX, FIELD(device.hbm_bandwidth)},
    {"eff", NUMBER, HEC_SHARE_MIN, 1, FIELD(device.flops_efficiency)},
    {"nic_eff", NUMBER, HEC_SHARE_MIN, 1, FIELD(nic.efficiency)},
    {"nvlink_eff", NUMBER, HEC_SHARE_MIN, 1, FIELD(port.efficiency)},
    {"sm", NUMBER, 0, 0.99, FIELD(device.comm_share)},
    {"nics", COUNT, 1, HEC_DEVICES_MAX, FIELD(nics)},
    {"leaf", COUNT, 1, HEC_DEVICES_MAX, FIELD(nodes_per_leaf)},
    {"tile", TILE, 1, HEC_TILE_MAX, FIELD(device.gemm_tile)},
    {"pxn", SWITCH, 0, 1, FIELD(pxn)},
    {"through", SWITCH, 0, 1, FIELD(nic_through_port)},
    {"a", SECONDS, 0, HEC_SECONDS_MAX, FIELD(device.gemm_a_s)},
    {"c", SECONDS, 0, HEC_SECONDS_MAX, FIELD(device.gemm_c_s)},
    {"launch", SECONDS, 0, HEC_SECONDS_MAX, FIELD(device.launch_s)},
    {"plan", PLAN, 0, HEC_SECONDS_MAX, FIELD(plan_a_s)},
    {"p2p", P2P, 1, HEC_CHANNELS_MAX, FIELD(p2p)},
    {"step", NUMBER, 1, HEC_IN_STEP_MAX, FIELD(device.in_step)},
    {"gpu", GPU, 0, 0, 0},
    {"slow", SLOW, HEC_SHARE_MIN, 1000, 0},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

enum { WORD_MAX = 100, PATH_WORD_MAX = 1000, SLOW_MAX = 64 }; /* a set-up's folder may stand in gpu= */

static const char gpu_word[] = "gpu=";

typedef struct {
  const char *line;
  hec_arena *arena;
  bool gpu_pass; /* the first: NxM and gpu= alone */
  hec_cluster_spec spec;
  int n_slow;
  int64_t slow_device[SLOW_MAX];
  double slow_speed[SLOW_MAX];
  bool given[N_KEYS];
  /* the word being read */
  size_t column;
  char word[PATH_WORD_MAX + 1];
} parser;

static hec_status bad_word(const parser *p, const char *expected) {
  return hec_fail(HEC_BAD_INPUT, "cluster \"%.200s\": column %zu: expected %s, found \"%.100s\"", p->line, p->column,
                  expected, p->word);
}

bool hec_cluster_read_decimal(const char **text, double *value) {
  static const char digits[] = "0123456789";
  const char *t = *text;
  size_t n = strspn(t, digits);
  if (n == 0)
    return false;
  if (t[n] == '.')
    n += 1 + strspn(t + n + 1, digits);
  if (t[n] == 'e' || t[n] == 'E') {
    size_t sign = t[n + 1] == '+' || t[n + 1] == '-', exponent = strspn(t + n + 1 + sign, digits);
    n += exponent > 0 ? 1 + sign + exponent : 0;
  }
  char copy[WORD_MAX + 1];
  if (n > WORD_MAX)
    return false;
  memcpy(copy, t, n);
  copy[n] = '\0';
  const char *end;
  *text += n;
  return hec_number_read(copy, &end, value);
}

static double factor_of(char suffix) {
  static const char suffixes[] = "KMGTP";
  const char *at = suffix ? strchr(suffixes, suffix) : NULL;
  double factor = 1;
  for (; at && at >= suffixes; at--)
    factor *= 1000;
  return factor;
}

static bool read_rate(const char **text, double *value) {
  if (!hec_cluster_read_decimal(text, value))
    return false;
  double factor = factor_of(**text);
  *text += factor > 1;
  *value *= factor;
  return true;
}

bool hec_cluster_read_seconds(const char **text, double *value) {
  static const struct {
    const char *name;
    double seconds;
  } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  if (!hec_cluster_read_decimal(text, value))
    return false;
  for (int i = 0; i < 4; i++) {
    size_t n = strlen(units[i].name);
    if (strncmp(*text, units[i].name, n) == 0) {
      *text += n;
      *value *= units[i].seconds;
      return true;
    }
  }
  return *value == 0;
}

static bool within(double value, double min, double max) {
  return value >= min && value <= max;
}

/* Behind a rate: nothing or B, bytes; b, bits. "/s" and "ps" say nothing more. */
static void read_unit(const char **text, double *value) {
  if (**text != 'b' && **text != 'B')
    return;
  *value /= **text == 'b' ? 8 : 1;
  *text += 1;
  *text += strncmp(*text, "/s", 2) == 0 || strncmp(*text, "ps", 2) == 0 ? 2 : 0;
}

static const double fast_nic = 1e11; /* bytes/s: 800 Gb/s, the fastest NIC of a GPU in 2025 (ConnectX-8) */
void hec_cluster_doubt(const hec_cluster *c, const char *spec, hec_text *words) {
  int32_t first;
  if (!hec_cluster_is_line(spec) || hec_cluster_kind(c, HEC_LINK_NIC_OUT, &first) == 0 ||
      c->links[first].nominal <= fast_nic)
    return;
  double gb = 1e-9 * c->links[first].nominal;
  hec_text_printf(words, "NICs of %.4g Gb/s: nic= is in bytes/s; for %.4g Gb/s write nic=%.4gGb", 8 * gb, gb, gb);
}

/* RATE or RATE@LATENCY */
static bool read_link(const line_key *key, const char **text, hec_link_spec *link) {
  if (!read_rate(text, &link->bandwidth))
    return false;
  read_unit(text, &link->bandwidth);
  if (!within(link->bandwidth, key->min, key->max))
    return false;
  if (**text != '@')
    return true;
  ++*text;
  return hec_cluster_read_seconds(text, &link->latency_s) && within(link->latency_s, 0, HEC_LATENCY_MAX);
}

/* A or A@B, seconds and seconds per unit */
static bool read_plan(const line_key *key, const char **text, hec_cluster_spec *spec) {
  if (!hec_cluster_read_seconds(text, &spec->plan_a_s) || !within(spec->plan_a_s, key->min, key->max))
    return false;
  if (**text != '@')
    return true;
  ++*text;
  return hec_cluster_read_seconds(text, &spec->plan_b_s) && within(spec->plan_b_s, key->min, key->max);
}

static bool is_integer(double value) {
  return (double)(int64_t)value == value;
}

/* CHANNELS:CHANNELS_PER_PEER, the latter a divisor */
static bool read_p2p(const line_key *key, const char **text, hec_p2p *p2p) {
  double channels, each;
  if (!hec_cluster_read_decimal(text, &channels) || !within(channels, key->min, key->max) || *(*text)++ != ':')
    return false;
  if (!hec_cluster_read_decimal(text, &each) || !within(each, 1, channels) || !is_integer(channels) ||
      !is_integer(each))
    return false;
  p2p->channels = (int32_t)channels;
  p2p->channels_per_peer = (int32_t)each;
  return p2p->channels % p2p->channels_per_peer == 0;
}

/* DEVICE:SPEED */
static bool read_slow(const line_key *key, const char **text, parser *p) {
  double device, speed;
  if (p->n_slow == SLOW_MAX || !hec_cluster_read_decimal(text, &device) || device >= HEC_DEVICES_MAX || **text != ':')
    return false;
  ++*text;
  if (!hec_cluster_read_decimal(text, &speed) || !within(speed, key->min, key->max) ||
      (double)(int64_t)device != device)
    return false;
  p->slow_device[p->n_slow] = (int64_t)device;
  p->slow_speed[p->n_slow++] = speed;
  return true;
}

static bool read_value(parser *p, const line_key *key, const char **text) {
  void *target = (char *)&p->spec + key->offset;
  double value = 0;
  switch (key->kind) {
  case LINK:
    return read_link(key, text, target);
  case PLAN:
    return read_plan(key, text, &p->spec);
  case P2P:
    return read_p2p(key, text, target);
  case SLOW:
    return read_slow(key, text, p);
  case RATE:
    if (!read_rate(text, &value) || !within(value, key->min, key->max))
      return false;
    break;
  case SECONDS:
    if (!hec_cluster_read_seconds(text, &value) || !within(value, key->min, key->max))
      return false;
    break;
  default:
    if (!hec_cluster_read_decimal(text, &value) || !within(value, key->min, key->max))
      return false;
    if (key->kind != NUMBER && !is_integer(value))
      return false;
  }
  if (key->kind == COUNT)
    *(int64_t *)target = (int64_t)value;
  else if (key->kind == TILE)
    *(int32_t *)target = (int32_t)value;
  else if (key->kind == SWITCH)
    *(bool *)target = value != 0;
  else
    *(double *)target = value;
  return true;
}

/* What does not go with gpu=, and what does not go without. */
static hec_status check_gpu(const parser *p, const line_key *key) {
  static const char *const of_peak[] = {"flops", "eff", "hbm", "tile", "a", "c", "launch", NULL};
  if (strcmp(key->key, "step") == 0 && !p->spec.gpu)
    return bad_word(p, "step= beside gpu= with laws only");
  for (int i = 0; p->spec.gpu && of_peak[i]; i++)
    if (strcmp(key->key, of_peak[i]) == 0)
      return bad_word(p, "no flops, eff, hbm, tile, a, c or launch beside gpu=, whose laws have them");
  return HEC_OK;
}

static hec_status read_gpu(parser *p, const line_key *key) {
  if (key->kind != GPU || !p->gpu_pass || p->spec.device.flops > 0)
    return HEC_OK;
  return hec_cluster_spec_take_gpu(&p->spec, p->word + strlen(key->key) + 1, "", p->arena);
}

static hec_status explain_value(const parser *p, const line_key *key) {
  static const char *const forms[] = {[RATE] = "a number with K, M, G, T or P",
                                      [LINK] = "bytes/s such as 300G@2us",
                                      [NUMBER] = "a number",
                                      [SECONDS] = "a time such as 3us",
                                      [COUNT] = "an integer",
                                      [TILE] = "an integer",
                                      [SWITCH] = "0 or 1",
                                      [PLAN] = "times such as 5us@1ns",
                                      [P2P] = "CHANNELS:PER_PEER such as 32:4 (a divisor)",
                                      [SLOW] = "DEVICE:SPEED such as 3:0.5",
                                      [GPU] = "the name of a device"};
  char expected[160];
  (void)snprintf(expected, sizeof expected, "%s= with %s, %g to %g", key->key, forms[key->kind], key->min, key->max);
  return bad_word(p, expected);
}

static hec_status read_word(parser *p) {
  size_t n = strcspn(p->word, "=");
  int i = 0;
  while (i < N_KEYS && (strlen(keys[i].key) != n || strncmp(keys[i].key, p->word, n) != 0))
    i++;
  if (p->gpu_pass)
    return i < N_KEYS && p->word[n] == '=' ? read_gpu(p, &keys[i]) : HEC_OK;
  if (i == N_KEYS || p->word[n] != '=')
    return bad_word(
        p, "KEY=VALUE with one of the keys nvlink nic uplink flops mem hbm eff nic_eff nvlink_eff sm nics leaf "
           "tile pxn through a c launch plan p2p step gpu slow");
  HEC_TRY(check_gpu(p, &keys[i]));
  if (p->given[i] && keys[i].kind != SLOW)
    return bad_word(p, "every key once");
  p->given[i] = true;
  const char *text = p->word + n + 1;
  if (keys[i].kind == GPU)
    return HEC_OK; /* in the first pass */
  if (strcmp(keys[i].key, "nvlink_eff") == 0 || strcmp(keys[i].key, "nic_eff") == 0) {
    hec_link_spec *link = keys[i].key[1] == 'v' ? &p->spec.port : &p->spec.nic;
    link->n_shares = 0;
    link->by_laws = false;
  }
  if (!read_value(p, &keys[i], &text) || *text != '\0')
    return explain_value(p, &keys[i]);
  return HEC_OK;
}

/* "4x8" */
static hec_status read_size(parser *p) {
  const char *text = p->word;
  double nodes = 0, devices = 0;
  bool ok = hec_cluster_read_decimal(&text, &nodes) && *text++ == 'x' && hec_cluster_read_decimal(&text, &devices) &&
            *text == '\0';
  if (!ok || !within(nodes, 1, HEC_DEVICES_MAX) || !within(devices, 1, HEC_DEVICES_MAX) || !is_integer(nodes) ||
      !is_integer(devices) || nodes * devices > HEC_DEVICES_MAX)
    return bad_word(p, "NODESxDEVICES, at most 4096 devices in all");
  p->spec.n_nodes = (int64_t)nodes;
  p->spec.devices_per_node = (int64_t)devices;
  return HEC_OK;
}

static hec_status read_words(parser *p) {
  static const char space[] = " \t";
  const char *at = p->line + strspn(p->line, space);
  bool first = true;
  while (*at || first) {
    size_t n = strcspn(at, space);
    p->column = (size_t)(at - p->line) + 1;
    (void)snprintf(p->word, sizeof p->word, "%.*s", (int)(n < PATH_WORD_MAX ? n : PATH_WORD_MAX), at);
    bool path = strncmp(at, gpu_word, strlen(gpu_word)) == 0;
    if (n > (path ? PATH_WORD_MAX : WORD_MAX))
      return bad_word(p, path ? "gpu= with at most 996 characters" : "words of at most 100 characters");
    HEC_TRY(first ? read_size(p) : read_word(p));
    first = false;
    at += n;
    at += strspn(at, space);
  }
  return HEC_OK;
}

/* The line, or as many whole words of it as fit and "...". */
static void name_after(const char *line, char *name, size_t size) {
  static const char cut[] = " ...";
  size_t n = strlen(line);
  (void)snprintf(name, size, "%s", line);
  if (n < size)
    return;
  n = size - sizeof cut;
  while (n > 0 && line[n] != ' ' && line[n] != '\t')
    n--;
  n = n > 0 ? n : size - sizeof cut; /* one long word of blanks and digits */
  (void)snprintf(name + n, size - n, "%s", cut);
}

hec_status hec_cluster_parse_line(const char *line, hec_arena *arena, hec_cluster *cluster) {
  parser p = {.line = line, .arena = arena, .gpu_pass = true, .spec = hec_cluster_spec_default()};
  char origin[256];
  name_after(line, p.spec.name, sizeof p.spec.name);
  (void)snprintf(origin, sizeof origin, "cluster \"%.200s\"", line);
  HEC_TRY(read_words(&p));
  p.gpu_pass = false;
  HEC_TRY(read_words(&p));
  if (!(p.spec.device.flops > 0) || !(p.spec.device.memory_bytes > 0))
    return hec_fail(HEC_BAD_INPUT, "%s: expected flops= and mem=, or gpu=, found %s", origin,
                    p.spec.device.flops > 0 ? "no mem=" : "no flops=");
  HEC_TRY(hec_cluster_spec_check(&p.spec, origin));
  int64_t n_devices = p.spec.n_nodes * p.spec.devices_per_node;
  for (int i = 0; i < p.n_slow; i++)
    if (p.slow_device[i] >= n_devices)
      return hec_fail(HEC_BAD_INPUT, "%s: slow: expected a device from 0 to %lld, found %lld", origin,
                      (long long)n_devices - 1, (long long)p.slow_device[i]);
  hec_cluster_build(&p.spec, arena, cluster);
  for (int i = 0; i < p.n_slow; i++)
    cluster->devices[p.slow_device[i]].speed = p.slow_speed[i];
  return HEC_OK;
}

/* Behind the first gpu=; NULL: none. */
static const char *find_gpu(const char *line, size_t *length) {
  for (const char *at = strstr(line, gpu_word); at; at = strstr(at + 1, gpu_word))
    if (at > line && strchr(" \t", at[-1])) {
      at += strlen(gpu_word);
      *length = strcspn(at, " \t");
      return at;
    }
  return NULL;
}

bool hec_cluster_line_file(const char *line, hec_text *name) {
  size_t n = 0;
  const char *at = find_gpu(line, &n);
  if (n == 0)
    return false;
  hec_text_add_bytes(name, at, n);
  return !hec_gpu_known(name->data);
}

hec_status hec_cluster_line_move(const char *line, const char *path, hec_text *moved) {
  size_t n = 0;
  const char *at = find_gpu(line, &n);
  HEC_ASSERT(at);
  if (path[strcspn(path, " \t")])
    return hec_fail(HEC_BAD_INPUT,
                    "cluster \"%.200s\": gpu=: expected the path of a device file without blanks, found \"%.400s\"; "
                    "put the cluster into a JSON file, with \"gpu\" in it",
                    line, path);
  hec_text_add_bytes(moved, line, (size_t)(at - line));
  hec_text_printf(moved, "%s%s", path, at + n);
  return HEC_OK;
}
