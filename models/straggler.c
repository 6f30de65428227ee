/* The options are read item by item, each applied at once: O(items * items) for "each once", O(ranks^2) for a link, O(1)
 * for a rank. */
#include "models/straggler.h"

#include "models/cluster_spec.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  const char *option; /* "`slow`" */
  const char *item;   /* between two commas */
  int length;         /* of the item */
  int32_t n_ranks;
  hec_cluster *cluster;
  hec_text *said;
  int32_t n, target[HEC_STRAGGLERS_MAX]; /* what was named: a rank, or n_devices + link */
} reader;

static hec_status wrong(const reader *r, const char *expected) {
  return hec_fail(HEC_BAD_INPUT, "%s: expected %s, found \"%.*s\"", r->option, expected,
                  r->length < 100 ? r->length : 100, r->item);
}

static bool ends(const reader *r, const char *at) {
  return at == r->item + r->length;
}

static bool take(const char **text, const char *word) {
  size_t n = strlen(word);
  if (strncmp(*text, word, n) != 0)
    return false;
  *text += n;
  return true;
}

/* Digits only; -1: none, or too many. */
static int32_t take_index(const char **text) {
  size_t n = strspn(*text, "0123456789");
  int32_t value = 0;
  if (n == 0 || n > 6)
    return -1;
  for (size_t i = 0; i < n; i++)
    value = value * 10 + ((*text)[i] - '0');
  *text += n;
  return value;
}

/* ":0.8" and the item's end */
static hec_status take_factor(const reader *r, const char *text, double *factor) {
  bool ok = take(&text, ":") && hec_cluster_read_decimal(&text, factor) && ends(r, text);
  return ok && *factor >= HEC_SHARE_MIN && *factor <= 1 ? HEC_OK
                                                        : wrong(r, "a factor from 1e-06 to 1 after the last colon");
}

/* Each rank and link once in an option. */
static hec_status remember(reader *r, int32_t target) {
  for (int32_t i = 0; i < r->n; i++)
    if (r->target[i] == target)
      return wrong(r, "every rank and link once");
  if (r->n == HEC_STRAGGLERS_MAX)
    return wrong(r, "at most 64 of them");
  r->target[r->n++] = target;
  return HEC_OK;
}

static hec_status take_rank(reader *r, const char **text, int32_t *rank) {
  *rank = take_index(text);
  char expected[64];
  (void)snprintf(expected, sizeof expected, "a rank from 0 to %d", r->n_ranks - 1);
  return *rank >= 0 && *rank < r->n_ranks ? remember(r, *rank) : wrong(r, expected);
}

static void say(const reader *r, const char *what) {
  hec_text_printf(r->said, "%s%s", r->said->length > 0 ? "; " : "", what);
}

static hec_status slow_rank(reader *r, const char *text) {
  int32_t rank;
  double factor;
  HEC_TRY(take_rank(r, &text, &rank));
  HEC_TRY(take_factor(r, text, &factor));
  double *speed = &r->cluster->devices[rank].speed;
  if (*speed * factor < HEC_SHARE_MIN)
    return wrong(r, "a speed that stays 1e-06 or more");
  char what[128];
  int n = snprintf(what, sizeof what, "rank %d computes at %g of its speed", rank, factor);
  if (*speed != 1) /* the cluster has slowed it already */
    (void)snprintf(what + n, sizeof what - (size_t)n, ", which is %g in the cluster: at %g", *speed, *speed * factor);
  *speed *= factor;
  say(r, what);
  return HEC_OK;
}

/* Which link: the place of (kind, index) in the numbering of cluster.c. */
static hec_status take_link(const reader *r, const char **text, int32_t *link) {
  static const char *const place[] = {":device", ":device", ":node", ":node", ":leaf", ":leaf"};
  int kind = 0;
  while (kind < HEC_N_LINK_KINDS && !take(text, hec_link_kind_name[kind]))
    kind++;
  if (kind == HEC_N_LINK_KINDS)
    return wrong(r, "link=KIND:PLACE:FACTOR with port_out, port_in, nic_out, nic_in, leaf_up or leaf_down");
  int32_t first, n = hec_cluster_kind(r->cluster, (hec_link_kind)kind, &first);
  if (n == 0)
    return wrong(r, "a kind of link that this cluster has");
  bool of_node = kind == HEC_LINK_NIC_OUT || kind == HEC_LINK_NIC_IN;
  int32_t places = of_node ? n / r->cluster->nics : n, nic = 0, index = take(text, place[kind]) ? take_index(text) : -1;
  char expected[96];
  (void)snprintf(expected, sizeof expected, "%s0 to %s%d after %s", place[kind] + 1, place[kind] + 1, places - 1,
                 hec_link_kind_name[kind]);
  if (index < 0 || index >= places)
    return wrong(r, expected);
  (void)snprintf(expected, sizeof expected, "nic0 to nic%d of the node", r->cluster->nics - 1);
  if (of_node && take(text, ".nic")) {
    nic = take_index(text);
    if (nic < 0 || nic >= r->cluster->nics)
      return wrong(r, expected);
  }
  *link = first + (of_node ? index * r->cluster->nics + nic : index);
  return HEC_OK;
}

/* A link that no message of the ranks takes would slow nothing down. O(ranks^2 * route length). */
static bool crossed(const reader *r, int32_t link) {
  for (int32_t s = 0; s < r->n_ranks; s++)
    for (int32_t d = 0; d < r->n_ranks; d++) {
      const int32_t *links;
      for (int32_t i = 0, n = hec_cluster_route(r->cluster, s, d, &links); i < n; i++)
        if (links[i] == link)
          return true;
    }
  return false;
}

static hec_status slow_link(reader *r, const char *text) {
  const char *name = text;
  int32_t id = 0;
  double factor;
  HEC_TRY(take_link(r, &text, &id));
  int length = (int)(text - name);
  HEC_TRY(take_factor(r, text, &factor));
  HEC_TRY(remember(r, r->cluster->n_devices + id));
  char expected[96];
  (void)snprintf(expected, sizeof expected, "a link that messages between ranks 0 to %d cross", r->n_ranks - 1);
  if (!crossed(r, id))
    return wrong(r, expected);
  double *bandwidth = &r->cluster->links[id].bandwidth;
  if (*bandwidth * factor < HEC_BANDWIDTH_MIN)
    return wrong(r, "a bandwidth that stays 1 byte/s or more");
  *bandwidth *= factor;
  char what[128];
  (void)snprintf(what, sizeof what, "link %.*s carries %g of its bandwidth", length < 60 ? length : 60, name, factor);
  say(r, what);
  return HEC_OK;
}

static hec_status read_slow(reader *r, const char *text) {
  if (take(&text, "rank="))
    return slow_rank(r, text);
  if (take(&text, "link="))
    return slow_link(r, text);
  return wrong(r, "rank=RANK:FACTOR or link=KIND:PLACE:FACTOR");
}

static hec_status read_skew(reader *r, const char *text) {
  int32_t rank;
  double seconds;
  if (!take(&text, "rank="))
    return wrong(r, "rank=RANK:TIME");
  HEC_TRY(take_rank(r, &text, &rank));
  bool ok = take(&text, ":") && hec_cluster_read_seconds(&text, &seconds) && ends(r, text);
  if (!ok || !(seconds <= HEC_SECONDS_MAX))
    return wrong(r, "a time from 0 to 10s such as 500us");
  r->cluster->devices[rank].skew_s = seconds;
  char what[96];
  (void)snprintf(what, sizeof what, "rank %d begins %g us late", rank, seconds * 1e6);
  say(r, what);
  return HEC_OK;
}

static hec_status read_items(reader *r, const char *list, hec_status (*read)(reader *r, const char *text)) {
  for (const char *at = list ? list : ""; *at;) {
    r->item = at;
    r->length = (int)strcspn(at, ",");
    HEC_TRY(read(r, at));
    at += r->length;
    if (*at == ',' && at[1] == '\0')
      return wrong(r, "another one after the last comma");
    at += *at == ',';
  }
  return HEC_OK;
}

static hec_cluster copy_of(const hec_cluster *whole, hec_arena *arena) {
  hec_cluster copy = *whole;
  copy.devices = HEC_NEW(arena, hec_device, whole->n_devices);
  copy.links = HEC_NEW(arena, hec_link, whole->n_links + 1);
  memcpy(copy.devices, whole->devices, (size_t)whole->n_devices * sizeof *copy.devices);
  if (whole->n_links > 0)
    memcpy(copy.links, whole->links, (size_t)whole->n_links * sizeof *copy.links);
  return copy;
}

hec_status hec_stragglers_apply(const hec_stragglers *stragglers, int32_t n_ranks, const hec_cluster *whole,
                                hec_arena *arena, hec_cluster *slowed, hec_text *said) {
  hec_cluster copy = copy_of(whole, arena);
  reader slow = {.option = "`slow`", .item = "", .n_ranks = n_ranks, .cluster = &copy, .said = said}, skew = slow;
  skew.option = "`skew`";
  if (stragglers->slow && !*stragglers->slow)
    return wrong(&slow, "rank=RANK:FACTOR or link=KIND:PLACE:FACTOR");
  if (stragglers->skew && !*stragglers->skew)
    return wrong(&skew, "rank=RANK:TIME");
  HEC_TRY(read_items(&slow, stragglers->slow, read_slow));
  HEC_TRY(read_items(&skew, stragglers->skew, read_skew));
  *slowed = copy;
  return HEC_OK;
}

hec_status hec_stragglers_check(const hec_stragglers *stragglers, int32_t n_ranks, const hec_cluster *cluster) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster slowed;
  HEC_SCOPED(hec_text) said = {0};
  return hec_stragglers_apply(stragglers, n_ranks, cluster, &arena, &slowed, &said);
}

hec_status hec_stragglers_none_late(const hec_cluster *cluster, int32_t n_ranks) {
  for (int32_t r = 0; r < n_ranks; r++)
    if (cluster->devices[r].skew_s > 0)
      return hec_fail(HEC_BAD_INPUT,
                      "cluster %s: device %d: skew_s: expected 0 (start skew is only simulated), found %g",
                      cluster->name, r, cluster->devices[r].skew_s);
  return HEC_OK;
}
