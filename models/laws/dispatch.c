/* Dispatch and combine of tokens as DeepEP does it: a token goes to a node once, and on from there inside the node.
 *
 *     copy    = (start + per_byte ranks bytes + forward nodes bytes) / sms       seconds per token: SMs move the data
 *     nvlink  = ranks (r-1)/r bytes / (h_nvlink NVLink)                          r: ranks of a node
 *     nic     = nodes bytes / (h_nic NIC)
 *     w       = tokens overlap(overlap(copy, nvlink), nic)
 *     t = t0 + t_node log2(nodes) + first bytes + w + sqrt(w knee)
 *
 * `ranks`, `nodes`: distinct ranks and other nodes that a token goes to. With uniform routing hec_distinct_groups has them;
 * a recorded or planned routing has its own. Below about 16 SMs the SMs bound it, not the NIC. The knee: messages of middling
 * size reach the rates only in part. Source: DeepEP (github.com/deepseek-ai/DeepEP); constants fitted to its published
 * times (models/presets/device-*.json). O(1). */
#include "models/laws/work.h"

enum { T0, T_NODE, START, PER_BYTE, FORWARD, NVLINK, NIC, EXPOSED, FIRST, KNEE, N_CONSTANTS };

static const hec_law_constant constants[N_CONSTANTS] = {
    {"t0", "s", "launch and notification inside a node", 1e-6, 2.5e-5, 1e-3, -1},
    {"t_node", "s", "notification, per doubling of the nodes", 1e-7, 3.5e-5, 1e-3, -1},
    {"start", "SM s", "per token", 1e-9, 5e-7, 1e-4, 0},
    {"per_byte", "SM s", "per byte and rank that it goes to", 1e-13, 4e-11, 1e-8, 0},
    {"forward", "SM s", "per byte and node that it goes to", 1e-13, 2e-10, 1e-8, 0},
    {"nvlink", "share", "of the data-sheet NVLink rate", 0.1, 0.75, 1, -1},
    {"nic", "share", "of the data-sheet NIC rate", 0.3, 0.92, 0.95, -1},
    {"exposed", "share", "of copying, NVLink and NIC that does not overlap", 1e-4, 0.1, 1, 0},
    {"first", "s", "per byte of a token, once", 1e-13, 1e-9, 1e-8, 0},
    {"knee", "s", "work at which the start of the pipeline costs as much as the work", 1e-9, 3e-6, 1e-4, 0},
};

double hec_distinct_groups(int64_t n_experts, int64_t n_groups, int64_t top_k) {
  double missed = 1, experts = (double)n_experts, others = experts - experts / (double)n_groups;
  for (int64_t i = 0; i < top_k && missed > 0; i++) {
    double left = others - (double)i;
    missed = left > 0 ? missed * left / (experts - (double)i) : 0;
  }
  return (double)n_groups * (1 - missed);
}

static double seconds(const hec_gpu_sheet *sheet, const double *c, const void *item) {
  const hec_dispatch_work *work = item;
  double per_node = (double)work->ranks_per_node, bytes = work->bytes;
  double copy_s = (c[START] + c[PER_BYTE] * work->ranks * bytes + c[FORWARD] * work->nodes * bytes) / (double)work->sms;
  double nvlink_s = work->ranks * (per_node - 1) / per_node * bytes / (c[NVLINK] * sheet->nvlink_bandwidth);
  double token_s = hec_overlap(copy_s, nvlink_s, c[EXPOSED]);
  if (work->n_nodes > 1)
    token_s = hec_overlap(token_s, work->nodes * bytes / (c[NIC] * sheet->nic_bandwidth), c[EXPOSED]);
  double work_s = (double)work->tokens * token_s;
  return c[T0] + c[T_NODE] * hec_law_log2(work->n_nodes) + c[FIRST] * bytes + work_s + sqrt(work_s * c[KNEE]);
}

const hec_cost_law hec_cost_law_dispatch = {
    .name = "dispatch",
    .summary = "dispatch and combine of tokens, once per node, as DeepEP does",
    .formula = "t0 + t_node log2(nodes) + first bytes + w + sqrt(w knee), w = tokens overlap(copy, NVLink, NIC)",
    .source = "form: DeepEP (github.com/deepseek-ai/DeepEP); constants: its published times",
    .range = "1 to 4 nodes of 8, 4 to 24 SMs; a fabric that is oversubscribed is not covered",
    .n_constants = N_CONSTANTS,
    .constants = constants,
    .work_size = sizeof(hec_dispatch_work),
    .seconds = seconds,
};
