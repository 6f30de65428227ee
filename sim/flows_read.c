/* Reads the JSON of a bare set of flows (form and errors: sim/flows.h). Names become indices through a table sorted by
 * name. Pairs become routes through a table sorted by (source, destination). O(n log n), and a duplicate is a
 * neighbour. */
#include "models/cluster_spec.h"
#include "models/json.h"
#include "sim/flows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS_MAX 65536
#define LINKS_MAX (1 << 20)
#define ROUTES_MAX (1 << 22)
#define FLOWS_MAX (1 << 22)
#define HOPS_MAX 64
#define BYTES_MAX ((int64_t)1 << 53) /* every integer up to here is a double */
#define BANDWIDTH_MIN 1e-3
#define BANDWIDTH_MAX 1e18
#define SECONDS_MAX 1e9

typedef struct {
  const char *name;
  const hec_json_value *value; /* where it stands */
  int32_t index;
} named;

typedef struct {
  int64_t pair; /* source * n_hosts + destination */
  const hec_json_value *value;
  int32_t index;
} paired;

typedef struct {
  const hec_json *json;
  hec_arena *arena; /* of the result */
  hec_arena scratch;
  hec_flows *flows;
  named *host, *link; /* sorted by name, then index */
  paired *route;      /* sorted by pair, then index */
} reader;

static int compare_names(const void *a, const void *b) {
  const named *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int compare_pairs(const void *a, const void *b) {
  const paired *x = a, *y = b;
  if (x->pair != y->pair)
    return x->pair < y->pair ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

static int name_against(const void *name, const void *entry) {
  return strcmp(name, ((const named *)entry)->name);
}

static int pair_against(const void *pair, const void *entry) {
  int64_t wanted = *(const int64_t *)pair, found = ((const paired *)entry)->pair;
  return (wanted > found) - (wanted < found);
}

/* The array `key` of the document: least..max elements. */
static hec_status get_array(const reader *r, const char *key, int32_t min, int32_t max, const hec_json_value **array,
                            int32_t *n) {
  const hec_json_value *root = hec_json_root(r->json);
  *array = hec_json_is_object(root) ? hec_json_get(root, key) : NULL;
  char expected[128];
  if (!*array) {
    (void)snprintf(expected, sizeof expected, "an object with the array \"%s\"", key);
    return hec_json_error(r->json, root, expected);
  }
  *n = hec_json_is_array(*array) ? hec_json_length(*array) : -1;
  if (*n >= min && *n <= max)
    return HEC_OK;
  (void)snprintf(expected, sizeof expected, "an array of %d to %d elements", min, max);
  return hec_json_error(r->json, *array, expected);
}

/* Sorts the table; a name that occurs twice is an error at its second place. */
static hec_status sort_names(const reader *r, named *table, int32_t n, const char *expected) {
  qsort(table, (size_t)n, sizeof *table, compare_names);
  const hec_json_value *twice = NULL;
  int32_t first = INT32_MAX; /* the earliest repetition in the file, whatever the order of names */
  for (int32_t i = 1; i < n; i++)
    if (strcmp(table[i - 1].name, table[i].name) == 0 && table[i].index < first) {
      first = table[i].index;
      twice = table[i].value;
    }
  return twice ? hec_json_error(r->json, twice, expected) : HEC_OK;
}

/* The index of the name that `value` is. */
static hec_status find_name(const reader *r, const named *table, int32_t n, const hec_json_value *value,
                            const char *expected, int32_t *index) {
  const named *found = NULL;
  if (hec_json_is_string(value))
    found = bsearch(hec_json_text(value), table, (size_t)n, sizeof *table, name_against);
  if (!found)
    return hec_json_error(r->json, value, expected);
  *index = found->index;
  return HEC_OK;
}

static hec_status read_hosts(reader *r) {
  const hec_json_value *array;
  hec_flows *flows = r->flows;
  HEC_TRY(get_array(r, "hosts", 1, HOSTS_MAX, &array, &flows->n_hosts));
  flows->host_name = HEC_NEW(r->arena, const char *, flows->n_hosts);
  r->host = HEC_NEW(&r->scratch, named, flows->n_hosts);
  int32_t h = 0;
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v), h++) {
    if (!hec_json_is_string(v))
      return hec_json_error(r->json, v, "the name of a host");
    flows->host_name[h] = hec_arena_text(r->arena, hec_json_text(v));
    r->host[h] = (named){flows->host_name[h], v, h};
  }
  return sort_names(r, r->host, flows->n_hosts, "a host's name only once");
}

static hec_status read_links(reader *r) {
  const hec_json_value *array;
  hec_flows *flows = r->flows;
  HEC_TRY(get_array(r, "links", 0, LINKS_MAX, &array, &flows->n_links));
  flows->link_name = HEC_NEW(r->arena, const char *, flows->n_links);
  flows->bandwidth = HEC_NEW(r->arena, double, flows->n_links);
  flows->latency = HEC_NEW(r->arena, double, flows->n_links);
  r->link = HEC_NEW(&r->scratch, named, flows->n_links);
  int32_t l = 0;
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v), l++) {
    const char *name;
    if (!hec_json_is_object(v))
      return hec_json_error(r->json, v, "a link: an object with id, bandwidth, latency");
    HEC_TRY(hec_json_want_text(r->json, v, "id", &name));
    HEC_TRY(hec_json_want_double(r->json, v, "bandwidth", BANDWIDTH_MIN, BANDWIDTH_MAX, &flows->bandwidth[l]));
    HEC_TRY(hec_json_double_or(r->json, v, "latency", 0, SECONDS_MAX, 0, &flows->latency[l]));
    flows->link_name[l] = hec_arena_text(r->arena, name);
    r->link[l] = (named){flows->link_name[l], hec_json_get(v, "id"), l};
  }
  return sort_names(r, r->link, flows->n_links, "a link's id only once");
}

/* Source and destination of a route or a flow. */
static hec_status read_ends(const reader *r, const hec_json_value *object, const char *what, int32_t *source,
                            int32_t *destination) {
  const char *name;
  if (!hec_json_is_object(object))
    return hec_json_error(r->json, object, what);
  HEC_TRY(hec_json_want_text(r->json, object, "src", &name));
  HEC_TRY(hec_json_want_text(r->json, object, "dst", &name));
  HEC_TRY(find_name(r, r->host, r->flows->n_hosts, hec_json_get(object, "src"), "the name of a host", source));
  return find_name(r, r->host, r->flows->n_hosts, hec_json_get(object, "dst"), "the name of a host", destination);
}

static hec_status route_hops(const reader *r, const hec_json_value *route, const hec_json_value **links, int32_t *n) {
  *links = hec_json_get(route, "links");
  if (!*links)
    return hec_json_error(r->json, route, "a route: an object with src, dst, links");
  *n = hec_json_is_array(*links) ? hec_json_length(*links) : -1;
  return *n >= 0 && *n <= HOPS_MAX ? HEC_OK : hec_json_error(r->json, *links, "an array of 0 to 64 links");
}

/* Offsets first, so that the links go into one array of the right size. */
static hec_status count_hops(reader *r, const hec_json_value *array) {
  hec_flows *flows = r->flows;
  int32_t i = 0;
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v), i++) {
    int32_t s = -1, d = -1, n = 0;
    const hec_json_value *links;
    HEC_TRY(read_ends(r, v, "a route: an object with src, dst, links", &s, &d));
    HEC_TRY(route_hops(r, v, &links, &n));
    flows->route_at[i + 1] = flows->route_at[i] + n; /* at most 2^22 * 64 */
    r->route[i] = (paired){(int64_t)s * flows->n_hosts + d, v, i};
  }
  return HEC_OK;
}

static hec_status sort_routes(const reader *r) {
  int32_t n = r->flows->n_routes, first = INT32_MAX;
  const hec_json_value *twice = NULL;
  qsort(r->route, (size_t)n, sizeof *r->route, compare_pairs);
  for (int32_t i = 1; i < n; i++)
    if (r->route[i - 1].pair == r->route[i].pair && r->route[i].index < first) {
      first = r->route[i].index;
      twice = r->route[i].value;
    }
  return twice ? hec_json_error(r->json, twice, "one route for a pair of hosts, not a second") : HEC_OK;
}

static hec_status read_routes(reader *r) {
  const hec_json_value *array;
  hec_flows *flows = r->flows;
  HEC_TRY(get_array(r, "routes", 0, ROUTES_MAX, &array, &flows->n_routes));
  flows->route_at = HEC_NEW(r->arena, int32_t, flows->n_routes + 1);
  flows->route_latency = HEC_NEW(r->arena, double, flows->n_routes);
  r->route = HEC_NEW(&r->scratch, paired, flows->n_routes);
  HEC_TRY(count_hops(r, array));
  flows->route_link = HEC_NEW(r->arena, int32_t, flows->route_at[flows->n_routes]);
  int32_t i = 0, at = 0;
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v), i++)
    for (const hec_json_value *l = hec_json_first(hec_json_get(v, "links")); l; l = hec_json_next(l), at++) {
      HEC_TRY(find_name(r, r->link, flows->n_links, l, "the id of a link", &flows->route_link[at]));
      flows->route_latency[i] += flows->latency[flows->route_link[at]];
    }
  return sort_routes(r);
}

static hec_status read_flow(const reader *r, const hec_json_value *v, hec_flow *flow) {
  HEC_TRY(read_ends(r, v, "a flow: an object with src, dst, bytes, start", &flow->source, &flow->destination));
  if (flow->source == flow->destination)
    return hec_json_error(r->json, hec_json_get(v, "dst"), "a host other than src");
  HEC_TRY(hec_json_want_int(r->json, v, "bytes", 0, BYTES_MAX, &flow->bytes));
  HEC_TRY(hec_json_double_or(r->json, v, "start", 0, SECONDS_MAX, 0, &flow->start));
  flow->expected_finish = -1;
  if (hec_json_get(v, "finish"))
    HEC_TRY(hec_json_want_double(r->json, v, "finish", 0, 1e300, &flow->expected_finish));
  int64_t pair = (int64_t)flow->source * r->flows->n_hosts + flow->destination;
  const paired *found = bsearch(&pair, r->route, (size_t)r->flows->n_routes, sizeof *r->route, pair_against);
  if (!found)
    return hec_json_error(r->json, v, "a flow between hosts that have a route");
  flow->route = found->index;
  return HEC_OK;
}

static hec_status read_flows(reader *r) {
  const hec_json_value *array;
  HEC_TRY(get_array(r, "flows", 1, FLOWS_MAX, &array, &r->flows->n_flows));
  r->flows->flow = HEC_NEW(r->arena, hec_flow, r->flows->n_flows);
  int32_t f = 0;
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v), f++)
    HEC_TRY(read_flow(r, v, &r->flows->flow[f]));
  return HEC_OK;
}

static hec_status read_nodes(reader *r) {
  const hec_json_value *root = hec_json_root(r->json);
  int64_t per_node;
  HEC_TRY(hec_json_int_or(r->json, root, "hosts_per_node", 1, r->flows->n_hosts, r->flows->n_hosts, &per_node));
  r->flows->hosts_per_node = (int32_t)per_node;
  r->flows->p2p = hec_cluster_spec_default().p2p;
  r->flows->p2p.ll_bytes = 0; /* bare flows move their bytes and no flags, unless the case says so */
  return hec_p2p_read(r->json, root, &r->flows->p2p);
}

static hec_status read_parts(reader *r) {
  HEC_TRY(read_hosts(r));
  HEC_TRY(read_nodes(r));
  HEC_TRY(read_links(r));
  HEC_TRY(read_routes(r));
  return read_flows(r);
}

/* Takes the document. `flows` is written only on success. */
static hec_status read_document(hec_json *json, hec_arena *arena, hec_flows *flows) {
  hec_flows found = {0};
  reader r = {.json = json, .arena = arena, .flows = &found};
  hec_status status = read_parts(&r);
  hec_arena_free(&r.scratch);
  hec_json_free(json);
  if (status == HEC_OK)
    *flows = found;
  return status;
}

hec_status hec_flows_read(const char *path, hec_arena *arena, hec_flows *flows) {
  hec_json *json;
  HEC_TRY(hec_json_read(path, &json));
  return read_document(json, arena, flows);
}

hec_status hec_flows_parse(const char *text, size_t length, const char *origin, hec_arena *arena, hec_flows *flows) {
  hec_json *json;
  HEC_TRY(hec_json_parse(text, length, origin, &json));
  return read_document(json, arena, flows);
}
