/* Any text as the one-line form of a cluster; what is accepted must be usable: routes within bounds, costs finite. */
#include "models/cluster.h"
#include "models/link_cost.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const hec_cluster *cluster, hec_arena *arena) {
  int32_t last = cluster->n_devices - 1;
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(cluster, arena);
  hec_transfer pair[] = {{.bytes = 12345, .source = 0, .destination = last, .after = -1},
                         {.bytes = 54321, .source = last, .destination = 0, .after = 0}};
  double seconds = hec_link_cost_exchange(&cost, pair, last > 0 ? 2 : 0, false, 4) +
                   hec_link_cost_allreduce(cluster, last + 1, 1e6) + hec_link_cost_allgather(cluster, last + 1, 64);
  if (!(seconds >= 0 && seconds < 1e12))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text)
    return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  hec_cluster cluster;
  HEC_SCOPED(hec_arena) arena = {0};
  if (hec_cluster_parse_line(text, &arena, &cluster) == HEC_OK)
    use(&cluster, &arena);
  free(text);
  return 0;
}
