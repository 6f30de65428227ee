/* A micro-batch as the recorded system runs it: fully sharded expert parallelism (FSEP) with recomputation of blocks, the
 * same for all methods. They differ in the loads alone. Layer l of N:
 *
 *   forward    attention  gate  counts  permute  dispatch  sort  experts  unsort  combine  unpermute
 *   backward   the forward again, then  unpermute'  combine'  unsort'  experts'  sort'  dispatch'  permute'  gate'
 *              attention'
 *   parameters every rank gathers the experts of its slots, slots * bytes * (N - 1)/N, and gives back as many gradients:
 *              forward gather(l + 1) after dispatch(l); backward gather(l - 1) after combine'(l), reduction(l) after
 *              experts'(l); dispatch(l) waits for gather(l). One lane, one after the other.
 *
 * Who waits for whom is the simulator's law: an exchange begins on a rank when the ranks it has rows for have posted.
 * So a rank that is done with its experts waits inside combine for the slowest of its node. `counts` (an all-gather)
 * makes all ranks meet before every dispatch.
 *
 * Rows. Only the assignments that each rank computes are known (L_d), not from whom they come. Every rank sends as many
 * as any other, A = sum L / ranks. Dispatch is local to the node where the node computes as many as its ranks send.
 * That is so in all but a few recorded layers; the artifact routes to a replica of the node when there is one:
 *   s -> d in node n      min(own, load)/n_per_node * L_d / load,  own = A * n_per_node, load = sum of L over the node
 *   s -> d otherwise      rows that s's node does not compute itself, to nodes that compute more than their own, in
 *                         proportion to how many more and to L_d
 * A rank's rows are spread evenly over its slots.
 *
 * What the columns of the measurement count:
 *   all-to-all  end - ready of every dispatch and combine, but not the dispatch of the last layer nor the combine of the
 *               first: those are another function there, which the column does not include
 *   experts     forward, again, and backward of twice the forward: forward * 4; kernels alone, as a profiler has them
 *
 * A kernel in a step takes hec_device.in_step times what it takes alone. The profiler's kernel time has not what is more: a gap on
 * one rank is time in which the others wait. So of experts it is counted in the exchange that follows them, where the ranks
 * of a node wait for each other. Of attention and what comes before `counts` it is in the rest of the step.
 * O(operations * ranks + transfers) per micro-batch. */
#include "validate/outcomes/outcomes_step.h"

#include "runtime/plan/problem.h"

#include <math.h>
#include <string.h>

/* Shapes, forward then backward. */
enum { ATTENTION = 0, GATE = 2, EXPERT = 4, HEAD = 6, EMBEDDING = 8, N_SHAPES = 10 };

typedef struct {
  int32_t transfer_at, n_transfers, part_at; /* dispatch */
  int32_t work_at, computed_at;
  int32_t gather; /* newest gather of the layer's experts */
} layer_rows;

struct hec_step {
  const hec_problem *problem;
  const hec_outcome_case *c;
  hec_sim *sim;
  hec_program program;
  hec_timeline timeline;
  layer_rows *layer;   /* [n_layers] */
  layer_rows shards;   /* transfers of a gather */
  double *load;        /* [n_layers * n_ranks] of the micro-batch */
  double *flow;        /* [n_nodes * n_nodes] rows from node to node */
  double *node_load;   /* [n_nodes] */
  int64_t *lane_end;   /* [n_ranks] */
  int32_t param, tail; /* last operation of the parameter lane, of the compute lane */
  bool backward;
};

hec_step *hec_step_new(const hec_problem *problem, const hec_law *law, const hec_outcome_case *c, hec_arena *arena) {
  HEC_ASSERT(problem->n_ranks == c->n_ranks && problem->n_layers == c->n_layers);
  hec_step *step = HEC_NEW(arena, hec_step, 1);
  step->problem = problem;
  step->c = c;
  step->sim = hec_sim_new(problem, law, arena);
  step->layer = HEC_NEW(arena, layer_rows, c->n_layers);
  step->load = HEC_NEW(arena, double, (size_t)c->n_layers *(size_t)c->n_ranks);
  step->flow = HEC_NEW(arena, double, (size_t)c->n_nodes *(size_t)c->n_nodes);
  step->node_load = HEC_NEW(arena, double, c->n_nodes);
  step->lane_end = HEC_NEW(arena, int64_t, c->n_ranks);
  return step;
}

void hec_step_free(hec_step *step) {
  if (!step)
    return;
  hec_sim_free(step->sim);
  hec_program_free(&step->program);
  hec_timeline_free(&step->timeline);
}

/* ---- rows ---- */

static void take_loads(hec_step *step, hec_method method, int32_t entry, hec_loads_law law) {
  const hec_outcome_case *c = step->c;
  size_t n = (size_t)c->n_ranks;
  double total = 0;
  for (int32_t l = 0; l < c->n_layers; l++)
    for (size_t r = 0; r < n; r++)
      total += step->load[(size_t)l * n + r] = (double)hec_outcome_load(c, method, entry, l)[r];
  for (size_t r = 0; r < n && law != HEC_LOADS_PER_LAYER; r++) {
    double sum = 0;
    for (int32_t l = 0; l < c->n_layers; l++)
      sum += step->load[(size_t)l * n + r];
    for (int32_t l = 0; l < c->n_layers; l++)
      step->load[(size_t)l * n + r] = (law == HEC_LOADS_MEAN ? total / (double)n : sum) / (double)c->n_layers;
  }
}

/* Rows from node to node: what a node computes of its own stays, the rest goes where more is computed than sent. */
static void find_flow(hec_step *step, const double *load, double *node_load) {
  int32_t nodes = step->c->n_nodes, each = step->c->devices_per_node;
  double total = 0, taken = 0;
  for (int32_t n = 0; n < nodes; n++) {
    node_load[n] = 0;
    for (int32_t r = n * each; r < (n + 1) * each; r++)
      node_load[n] += load[r];
    total += node_load[n];
  }
  double own = total / nodes;
  for (int32_t n = 0; n < nodes; n++)
    taken += node_load[n] > own ? node_load[n] - own : 0;
  for (int32_t i = 0; i < nodes; i++)
    for (int32_t j = 0; j < nodes; j++) {
      double spare = own > node_load[i] ? own - node_load[i] : 0, wants = node_load[j] > own ? node_load[j] - own : 0;
      step->flow[i * nodes + j] = i == j ? fmin(own, node_load[i]) : taken > 0 ? spare * wants / taken : 0;
    }
}

static void add_transfer(hec_program *program, int32_t source, int32_t destination, double bytes) {
  if (source == destination || !(bytes >= 0.5))
    return;
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + 1);
  program->transfers[program->n_transfers++] = (hec_transfer){
      .bytes = (int64_t)(bytes + 0.5), .source = source, .destination = destination, .item = -1, .after = -1};
}

/* Work of the experts and bytes of the sort: the rank's rows, evenly over its slots. */
static void add_work(hec_step *step, layer_rows *rows, const double *load) {
  hec_program *program = &step->program;
  int32_t n = step->c->n_ranks, slots = step->c->slots;
  rows->computed_at = hec_program_local_bytes(program, n);
  HEC_RESERVE(program->work, program->work_capacity, program->n_work + (size_t)n * (size_t)slots);
  HEC_RESERVE(program->work_index, program->work_index_capacity, program->n_work_index + (size_t)n + 1);
  rows->work_at = (int32_t)program->n_work_index;
  for (int32_t r = 0; r < n; r++) {
    int32_t total = (int32_t)(load[r] + 0.5);
    program->local_bytes[rows->computed_at + r] = total;
    program->work_index[program->n_work_index++] = (int32_t)program->n_work;
    for (int32_t k = 0; k < slots; k++)
      program->work[program->n_work++] = (hec_work){-1, total / slots + (k < total % slots)};
  }
  program->work_index[program->n_work_index++] = (int32_t)program->n_work;
}

/* The transfers of a layer's dispatch. */
static void add_rows(hec_step *step, int32_t l, bool all_wait) {
  hec_program *program = &step->program;
  const hec_outcome_case *c = step->c;
  layer_rows *rows = &step->layer[l];
  int32_t n = c->n_ranks, each = c->devices_per_node, nodes = c->n_nodes;
  const double *load = step->load + (size_t)l * (size_t)n;
  find_flow(step, load, step->node_load);
  *rows = (layer_rows){.transfer_at = (int32_t)program->n_transfers, .part_at = -1, .gather = -1};
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      double to_node = step->flow[s / each * nodes + d / each], of_node = step->node_load[d / each];
      double bytes = of_node > 0 ? to_node / each * load[d] / of_node * step->problem->bytes.token : 0;
      add_transfer(program, s, d, all_wait && bytes < 1 ? 1 : bytes);
    }
  rows->n_transfers = (int32_t)program->n_transfers - rows->transfer_at;
  add_work(step, rows, load);
}

/* A gather of all slots: every rank sends its slice of each expert to every slot. */
static void add_shards(hec_step *step) {
  hec_program *program = &step->program;
  int32_t n = step->c->n_ranks;
  step->shards = (layer_rows){.transfer_at = (int32_t)program->n_transfers, .part_at = -1};
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++)
      add_transfer(program, s, d, step->c->slots * step->problem->bytes.expert_param / n);
  step->shards.n_transfers = (int32_t)program->n_transfers - step->shards.transfer_at;
}

/* ---- operations ---- */

static hec_op op_of(const hec_step *step, hec_op_kind kind, hec_lane lane, hec_role role, int32_t layer) {
  hec_op op = hec_op_new(kind, lane, role, layer);
  op.backward = step->backward;
  return op;
}

static int32_t add(hec_step *step, hec_op op, int32_t after, int32_t also) {
  const int32_t deps[2] = {after, also};
  return hec_program_add(&step->program, op, deps, 2);
}

/* Compute of the rank's tokens. */
static void uniform(hec_step *step, hec_role role, int32_t l, int32_t shape) {
  hec_op op = op_of(step, HEC_OP_COMPUTE, HEC_LANE_COMPUTE, role, l);
  op.compute.shape = shape;
  op.compute.rows = step->problem->tokens;
  step->tail = add(step, op, step->tail, -1);
}

/* Rows read and written once: of the rank's own tokens, or (received) of those it computes. */
static void copy_rows(hec_step *step, hec_role role, int32_t l, bool received) {
  hec_op op = op_of(step, HEC_OP_LOCAL, HEC_LANE_COMPUTE, role, l);
  double token = 2 * step->problem->bytes.token;
  op.bytes = received ? token : token * step->problem->tokens * step->problem->top_k;
  op.local.bytes_at = received ? step->layer[l].computed_at : -1;
  step->tail = add(step, op, step->tail, -1);
}

static void exchange(hec_step *step, hec_role role, int32_t l, bool to_experts) {
  layer_rows *rows = &step->layer[l];
  if (rows->n_transfers == 0)
    return;
  hec_op op = op_of(step, HEC_OP_EXCHANGE, HEC_LANE_TOKEN, role, l);
  op.reverse = !to_experts;
  op.exchange.transfer_at = rows->transfer_at;
  op.exchange.n_transfers = rows->n_transfers;
  op.exchange.part_at = rows->part_at;
  step->tail = add(step, op, step->tail, to_experts ? rows->gather : -1);
  rows->part_at = step->program.ops[step->tail].exchange.part_at;
}

static void experts(hec_step *step, int32_t l, int32_t shape) {
  hec_op op = op_of(step, HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EXPERTS, l);
  op.compute.shape = shape;
  op.compute.work_at = step->layer[l].work_at;
  step->tail = add(step, op, step->tail, step->layer[l].gather);
}

/* The experts of a layer gathered, or (reduction) their gradients given back. */
static void shards(hec_step *step, int32_t l, hec_role role) {
  if (l < 0 || l >= step->c->n_layers || step->shards.n_transfers == 0)
    return;
  hec_op op = op_of(step, HEC_OP_EXCHANGE, HEC_LANE_PARAM, role, l);
  op.exchange.transfer_at = step->shards.transfer_at;
  op.exchange.n_transfers = step->shards.n_transfers;
  op.exchange.part_at = step->shards.part_at;
  op.reverse = role == HEC_ROLE_SCATTER;
  int32_t id = step->param = add(step, op, step->tail, step->param);
  step->shards.part_at = step->program.ops[id].exchange.part_at;
  if (role != HEC_ROLE_SCATTER)
    step->layer[l].gather = id;
}

static void forward_layer(hec_step *step, int32_t l) {
  uniform(step, HEC_ROLE_ATTENTION, l, ATTENTION);
  uniform(step, HEC_ROLE_GATE, l, GATE);
  hec_op counts = op_of(step, HEC_OP_COUNTS, HEC_LANE_TOKEN, HEC_ROLE_COUNTS, l);
  counts.bytes = 4.0 * step->problem->n_experts;
  step->tail = add(step, counts, step->tail, -1);
  copy_rows(step, HEC_ROLE_PERMUTE, l, false);
  exchange(step, HEC_ROLE_DISPATCH, l, true);
  if (!step->backward)
    shards(step, l + 1, HEC_ROLE_GATHER);
  copy_rows(step, HEC_ROLE_PERMUTE, l, true);
  experts(step, l, EXPERT);
  copy_rows(step, HEC_ROLE_UNPERMUTE, l, true);
  exchange(step, HEC_ROLE_COMBINE, l, false);
  copy_rows(step, HEC_ROLE_UNPERMUTE, l, false);
}

static void backward_layer(hec_step *step, int32_t l) {
  if (step->problem->moe->recompute)
    forward_layer(step, l);
  copy_rows(step, HEC_ROLE_UNPERMUTE, l, false);
  exchange(step, HEC_ROLE_COMBINE, l, true);
  shards(step, l - 1, HEC_ROLE_REGATHER);
  copy_rows(step, HEC_ROLE_UNPERMUTE, l, true);
  experts(step, l, EXPERT + 1);
  shards(step, l, HEC_ROLE_SCATTER);
  copy_rows(step, HEC_ROLE_PERMUTE, l, true);
  exchange(step, HEC_ROLE_DISPATCH, l, false);
  copy_rows(step, HEC_ROLE_PERMUTE, l, false);
  uniform(step, HEC_ROLE_GATE, l, GATE + 1);
  uniform(step, HEC_ROLE_ATTENTION, l, ATTENTION + 1);
}

static void add_shapes(hec_step *step) {
  const hec_moe *moe = step->problem->moe;
  const hec_work_shape forward[] = {hec_work_attention(moe), hec_work_gate(moe), step->problem->expert,
                                    hec_work_head(moe), hec_work_embedding(moe)};
  hec_program *program = &step->program;
  HEC_RESERVE(program->shapes, program->shapes_capacity, N_SHAPES);
  for (size_t i = 0; i < sizeof forward / sizeof *forward; i++) {
    program->shapes[program->n_shapes++] = forward[i];
    program->shapes[program->n_shapes++] = hec_work_backward(forward[i]);
  }
}

static void build(hec_step *step, bool all_wait) {
  int32_t n_layers = step->c->n_layers;
  hec_program_clear(&step->program, step->c->n_ranks);
  add_shapes(step);
  add_shards(step);
  for (int32_t l = 0; l < n_layers; l++)
    add_rows(step, l, all_wait);
  step->tail = step->param = -1;
  step->backward = false;
  uniform(step, HEC_ROLE_EMBEDDING, -1, EMBEDDING);
  shards(step, 0, HEC_ROLE_GATHER);
  for (int32_t l = 0; l < n_layers; l++)
    forward_layer(step, l);
  uniform(step, HEC_ROLE_HEAD, -1, HEAD);
  step->backward = true;
  shards(step, n_layers - 1, HEC_ROLE_REGATHER);
  uniform(step, HEC_ROLE_HEAD, -1, HEAD + 1);
  for (int32_t l = n_layers - 1; l >= 0; l--)
    backward_layer(step, l);
  uniform(step, HEC_ROLE_EMBEDDING, -1, EMBEDDING + 1);
}

/* ---- reading the timeline ---- */

/* What the recorded column counts of an exchange. */
static bool counted(const hec_step *step, const hec_op *op) {
  return (op->role == HEC_ROLE_DISPATCH && op->layer != step->c->n_layers - 1) ||
         (op->role == HEC_ROLE_COMBINE && op->layer != 0);
}

/* The same of the exchange that follows experts: combine, backward dispatch. */
static bool counted_after(const hec_step *step, const hec_op *op) {
  return op->compute.shape == EXPERT ? op->layer != 0 : op->layer != step->c->n_layers - 1;
}

/* When the rank could post the exchange: end of what it depends on and of its lane. */
static int64_t ready_at(const hec_step *step, const hec_op *op, int32_t rank) {
  int64_t ready = step->lane_end[rank];
  for (int32_t d = 0; d < op->n_deps; d++) {
    size_t id = (size_t)step->program.deps[op->dep_at + d];
    int64_t end = step->timeline.end_ps[id * (size_t)step->c->n_ranks + (size_t)rank];
    ready = end > ready ? end : ready;
  }
  return ready;
}

static void read_times(hec_step *step, hec_step_times *sum) {
  int32_t n = step->c->n_ranks;
  memset(step->lane_end, 0, (size_t)n * sizeof *step->lane_end);
  for (size_t i = 0; i < step->program.n_ops; i++) {
    const hec_op *op = &step->program.ops[i];
    const int64_t *begin = step->timeline.begin_ps + i * (size_t)n, *end = step->timeline.end_ps + i * (size_t)n;
    for (int32_t r = 0; r < n; r++) {
      if (end[r] < 0)
        continue;
      if (counted(step, op)) {
        sum->alltoall_s[r] += (double)(end[r] - ready_at(step, op, r)) * 1e-12;
        sum->wire_s[r] += (double)(end[r] - begin[r]) * 1e-12;
      }
      if (op->role == HEC_ROLE_EXPERTS) {
        double in_step_s = (double)(end[r] - begin[r]) * 1e-12,
               alone_s = in_step_s / step->problem->cluster->devices[r].in_step;
        sum->expert_s[r] += alone_s;
        sum->alltoall_s[r] += counted_after(step, op) ? in_step_s - alone_s : 0;
      }
      if (op->lane == HEC_LANE_TOKEN)
        step->lane_end[r] = end[r];
    }
  }
  hec_breakdown parts = hec_timeline_breakdown(&step->timeline, &step->program);
  sum->total_s += parts.total_s;
  sum->parts.total_s += parts.total_s;
  sum->parts.wait_s += parts.wait_s;
  for (int32_t i = 0; i < HEC_N_BOOKS; i++)
    sum->parts.book_s[i] += parts.book_s[i];
  for (int32_t i = 0; i < HEC_N_ROLES; i++)
    sum->parts.role_s[i] += parts.role_s[i];
}

void hec_step_add(hec_step *step, hec_method method, int32_t entry, hec_step_options options, hec_step_times *sum) {
  take_loads(step, method, entry, options.loads);
  build(step, options.all_wait);
  hec_program_check(&step->program);
  hec_sim_run(step->sim, &step->program, (hec_sim_options){.without_one_off = false}, &step->timeline);
  hec_timeline_check(&step->timeline, &step->program);
  read_times(step, sum);
}
