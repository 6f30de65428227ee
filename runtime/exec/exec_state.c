/* Memory, plans and what the work table asks for. Layout of a rank's region, every part on a 4 KiB page:
 *
 *   dense state | counts | workspace | staging of all-reduces | planned buffers ->   <- expert slots
 *
 * Buffers and slots grow towards each other. On the CPU the region is reserved address space with room for the worst case,
 * of which only what is touched takes memory. On a device it is what there is. */
#include "runtime/exec/exec.h"

#include "runtime/base/arena.h"
#include "runtime/exec/exec_state.h"
#include "runtime/exec/rows/relays.h"
#include "runtime/plan/replicas.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };
/* Address space for planned buffers: they take what the memory model says and some fragments. */
static const size_t buffers_max = (size_t)1 << 36;

typedef struct {
  size_t dense, counts, workspace, staging, buffers;
  int32_t n_slots; /* at most */
} layout;

static size_t pages(size_t bytes) {
  return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* One array of the dense state, to a whole cache line. */
static int64_t dense_floats(const hec_exec_options *o) {
  return ((int64_t)o->problem->n_layers * o->block_size + o->rest_size + 15) / 16 * 16;
}

static int32_t arrays(const hec_exec_options *o) {
  return o->problem->train ? 4 : 1;
}

static layout layout_of(const hec_exec_options *o) {
  const hec_problem *p = o->problem;
  int64_t max = o->block_size > o->rest_size ? o->block_size : o->rest_size;
  size_t counts = (size_t)o->n_micro_batches * (size_t)p->n_layers * (size_t)p->n_ranks * (size_t)p->n_experts;
  layout at = {.n_slots = p->n_layers * p->n_experts * o->n_slices}; /* a part has one slot, migrating or not */
  at.counts = at.dense + pages((size_t)(dense_floats(o) * arrays(o)) * sizeof(float));
  at.workspace = at.counts + pages(counts * sizeof(uint32_t));
  at.staging = at.workspace + pages((size_t)o->workspace_size * sizeof(float));
  /* n_ranks - 1 slices of an all-reduce, each rounded up to a whole number */
  at.buffers = at.staging + pages(p->train ? ((size_t)max + (size_t)p->n_ranks) * sizeof(float) : 0);
  return at;
}

static size_t slot_bytes(const hec_exec_options *o, int32_t n) {
  return hec_store_bytes(o->expert_size, o->n_slices, arrays(o), n);
}

size_t hec_exec_bytes(const hec_exec_options *options) {
  layout at = layout_of(options);
  return at.buffers + buffers_max + pages(slot_bytes(options, at.n_slots));
}

/* The host's view of the counts: where devices compute, memory that both reach. It goes with the processor only, so the
 * executors of a rank, of which a measurement makes hundreds, take it over from each other. */
static uint32_t *host_counts(const hec_exec *exec, size_t bytes) {
  hec_rank *rank = exec->rank;
  hec_processor *on = rank->processor;
  if (!on->streams)
    return exec->counts;
  if (bytes > rank->host_bytes) {
    rank->host_memory = on->streams->host_memory(on, bytes);
    rank->host_bytes = rank->host_memory ? bytes : 0;
  }
  if (rank->host_memory)
    memset(rank->host_memory, 0, bytes);
  return rank->host_memory;
}

hec_status hec_exec_new(const hec_exec_options *options, hec_arena *arena, hec_exec **exec) {
  const hec_problem *p = options->problem;
  layout at = layout_of(options);
  size_t end = options->rank->memory_bytes / PAGE * PAGE;
  HEC_ASSERT(options->rank->n_ranks == p->n_ranks);
  HEC_ASSERT(!options->rank->processor->streams || options->rank->link);
  if (at.buffers + PAGE > end)
    return hec_rank_fail(options->rank, "needs more than %zu bytes of memory, has %zu", at.buffers, end);
  hec_exec *e = HEC_NEW(arena, hec_exec, 1);
  options->rank->serial = options->rank->processor->streams && options->virtual_time;
  char *base = options->rank->memory;
  *e = (hec_exec){.options = *options,
                  .problem = p,
                  .rank = options->rank,
                  .r = options->rank->rank,
                  .n_ranks = p->n_ranks,
                  .n_layers = p->n_layers,
                  .n_experts = p->n_experts,
                  .train = p->train,
                  .streams = options->rank->processor->streams != NULL,
                  .dense = (float *)(void *)(base + at.dense),
                  .counts = (uint32_t *)(void *)(base + at.counts),
                  .workspace = (float *)(void *)(base + at.workspace),
                  .staging = (float *)(void *)(base + at.staging)};
  e->counts_host = host_counts(e, at.workspace - at.counts);
  if (!e->counts_host)
    return hec_rank_fail(options->rank, "no memory of the host for %zu bytes of counts", at.workspace - at.counts);
  e->store = hec_store_new(arena, (float *)(void *)(base + end), p->n_layers * p->n_experts, options->n_slices,
                           options->expert_size, arrays(options), at.n_slots);
  hec_buffers_init(&e->buffers, base + at.buffers, end - at.buffers);
  e->keeps = HEC_NEW(arena, uint8_t, (size_t)p->n_layers * (size_t)p->n_experts * (size_t)options->n_slices);
  e->rows = HEC_NEW(arena, const hec_rows *, options->n_micro_batches * p->n_layers);
  e->node_rows = HEC_NEW(arena, const hec_node_rows *, p->n_layers);
  e->links = options->rank->cluster ? options->rank->cluster : p->cluster;
  e->cost = hec_link_cost_new(e->links, arena);
  if (e->train) /* a region may have been used before */
    e->rank->processor->math->zero(e->rank->processor, hec_exec_dense(e, 0).grads, dense_floats(options));
  e->delays = options->watched && !e->streams ? open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC) : -1;
  *exec = e;
  return HEC_OK;
}

void hec_exec_free(hec_exec *exec) {
  if (!exec)
    return;
  if (exec->delays >= 0)
    (void)close(exec->delays);
  hec_buffers_free(&exec->buffers);
  hec_link_cost_free(&exec->cost);
  hec_arena_free(&exec->step);
  free(exec->ops);
  free(exec->open);
  free(exec->after);
  for (int32_t l = 0; l < HEC_N_LANES; l++)
    free(exec->lane[l].op);
}

/* Arrays of all blocks one after the other: parameters, gradients, first, second moments. */
hec_dense hec_exec_dense(const hec_exec *exec, int32_t layer) {
  int64_t all = dense_floats(&exec->options), block = exec->options.block_size;
  float *at = exec->dense + (layer < 0 ? exec->n_layers : layer) * block;
  hec_dense dense = {.params = at, .n = layer < 0 ? exec->options.rest_size : block};
  if (exec->train) {
    dense.grads = at + all;
    dense.first = at + 2 * all;
    dense.second = at + 3 * all;
  }
  return dense;
}

hec_store *hec_exec_store(hec_exec *exec) {
  return &exec->store;
}
float *hec_exec_workspace(const hec_exec *exec) {
  return exec->workspace;
}
hec_arena *hec_exec_step_arena(hec_exec *exec) {
  return &exec->step;
}
const hec_problem *hec_exec_problem(const hec_exec *exec) {
  return exec->problem;
}
int32_t hec_exec_rank(const hec_exec *exec) {
  return exec->r;
}
hec_processor *hec_exec_processor(const hec_exec *exec) {
  return exec->rank->processor;
}
bool hec_exec_train(const hec_exec *exec) {
  return exec->train;
}

hec_rank_memory hec_exec_memory(hec_exec *exec, int64_t updated) {
  const hec_store *store = &exec->store;
  int64_t n = 0;
  for (int32_t l = -1; l < exec->n_layers; l++)
    n += hec_exec_dense(exec, l).n;
  for (int32_t row = 0; row < store->n_rows; row++)
    for (int32_t part = 0; part < store->n_parts; part++)
      n += hec_store_has(store, row, part) ? hec_store_at(store, row, part).n : 0;
  double bytes = (double)n * sizeof(float);
  return (hec_rank_memory){.parameters = bytes,
                           .gradients = exec->train ? bytes : 0,
                           .optimizer = 2.0 * sizeof(float) * (double)updated,
                           .activations = exec->buffers.peak};
}

double hec_exec_workspace_bytes(const hec_exec *exec) {
  return (double)exec->options.workspace_size * sizeof(float);
}

/* ---- Plans ---- */

/* Slots end where buffers may be: when the last one is taken, those have less. */
hec_status hec_exec_take(hec_exec *exec, int32_t row, int32_t part) {
  size_t end = (size_t)((char *)exec->store.end - exec->buffers.base),
         needed = hec_store_needs(&exec->store, row, part);
  if (needed > end || !hec_buffers_resize(&exec->buffers, end - needed))
    return hec_rank_fail(exec->rank,
                         "no memory for another expert: %d are kept here already, beside %zu bytes of buffers",
                         exec->store.n_used, exec->buffers.top);
  return hec_store_take(&exec->store, row, part, exec->rank->processor);
}

/* The rank whose homes are this one's too: the first of its expert-sharding group, where plans put homes. */
static int32_t home_of(const hec_exec *exec) {
  return exec->r - exec->r % exec->problem->esp;
}

static bool plan_keeps(const hec_plan *plan, int32_t layer, int32_t expert, int32_t part, int32_t rank) {
  size_t row = (size_t)layer * (size_t)plan->n_experts + (size_t)expert;
  size_t at = row * (size_t)plan->n_slices + (size_t)part;
  HEC_ASSERT(plan->home[at] == plan->opt_home[at]); /* optimizer state elsewhere would need traffic of its own */
  if (plan->home[at] == rank)
    return true;
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  for (int32_t i = 0; i < copies.n; i++)
    if (copies.rank[i] == rank && copies.kind[i] == HEC_COPY_RESIDENT)
      return true;
  return false;
}

/* Experts kept here, as lower.c counts them: in slices; shards; a copy per slot; reserved slots whether in use or not. */
static double kept_experts(const hec_exec *exec, const hec_plan *plan) {
  double kept = 0, reserved = (double)plan->slots * exec->n_layers;
  for (int32_t l = 0; l < exec->n_layers; l++)
    for (int32_t e = 0; e < exec->n_experts; e++) {
      const int32_t *home = plan->home + hec_row_of(exec, l, e) * (size_t)plan->n_slices;
      hec_copies copies = hec_plan_copies(plan, l, e);
      for (int32_t part = 0; part < plan->n_slices; part++)
        kept += home[part] == home_of(exec) ? 1.0 / plan->n_slices : 0;
      for (int32_t i = 0; i < copies.n; i++)
        kept += copies.rank[i] == exec->r && copies.kind[i] == HEC_COPY_RESIDENT;
    }
  kept /= exec->problem->esp;
  return kept > reserved ? kept : reserved;
}

/* Optimizer state of them, in experts. */
static double updated_experts(const hec_exec *exec, double kept) {
  double updated = 0;
  for (int32_t e = 0; exec->problem->zero && e < exec->n_experts; e++) {
    hec_replica_own own = hec_replica_own_of(exec->problem, e, exec->r);
    for (int32_t l = 0; l < exec->n_layers; l++)
      updated += hec_exec_keeps(exec, l, e, 0) ? (double)own.n / own.n_parts : 0;
  }
  return exec->problem->zero ? updated : kept;
}

static double state_of_plan(const hec_exec *exec, const hec_plan *plan) {
  const hec_memory_cost *bytes = &exec->problem->bytes;
  double experts = kept_experts(exec, plan);
  if (!exec->train)
    return bytes->dense_param + experts * bytes->expert_param;
  return bytes->dense_param + bytes->dense_grad + bytes->dense_optimizer + bytes->activation_rest +
         experts * (bytes->expert_param + bytes->expert_grad) +
         updated_experts(exec, experts) * bytes->expert_optimizer;
}

hec_status hec_exec_check_capacity(hec_exec *exec) {
  double capacity = exec->options.capacity, needed = exec->kept_bytes + exec->buffers.live;
  if (capacity <= 0 || needed <= capacity)
    return HEC_OK;
  return hec_rank_fail(exec->rank,
                       "iteration %" PRId64 " needs %.0f bytes of memory (%.0f of state, %.0f of buffers), the stated "
                       "capacity of a rank is %.0f bytes",
                       exec->iteration, needed, exec->kept_bytes, exec->buffers.live, capacity);
}

hec_status hec_exec_set_plan(hec_exec *exec, const hec_plan *plan, bool fresh) {
  HEC_ASSERT(plan->n_slices == exec->options.n_slices);
  uint8_t *keep = exec->keeps;
  for (int32_t l = 0; l < exec->n_layers; l++)
    for (int32_t e = 0; e < exec->n_experts; e++)
      for (int32_t part = 0; part < plan->n_slices; part++) {
        *keep = plan_keeps(plan, l, e, part, home_of(exec));
        if (*keep++ && fresh)
          HEC_TRY(hec_exec_take(exec, (int32_t)hec_row_of(exec, l, e), part));
      }
  exec->kept_bytes = state_of_plan(exec, plan);
  return hec_exec_check_capacity(exec);
}

bool hec_exec_keeps(const hec_exec *exec, int32_t layer, int32_t expert, int32_t part) {
  return exec->keeps[hec_row_of(exec, layer, expert) * (size_t)exec->options.n_slices + (size_t)part] != 0;
}

/* ---- Buffers of an operation ---- */

static const hec_open_buffer_of *find_open(const hec_exec *exec, hec_tensor tensor, int32_t layer,
                                           int32_t micro_batch) {
  for (size_t i = exec->n_open; i-- > 0;) {
    const hec_open_buffer_of *b = &exec->open[i];
    if (b->tensor == tensor && b->layer == layer && b->micro_batch == micro_batch)
      return b;
  }
  return NULL;
}

void *hec_exec_tensor(const hec_exec *exec, const hec_exec_op *op, hec_tensor tensor) {
  const hec_open_buffer_of *b = find_open(exec, tensor, op->op.layer, op->op.micro_batch);
  HEC_ASSERT(b != NULL);
  return b->at;
}

/* An item's place in the open buffers that list what they have, `floats` each; NULL: not there. */
static float *find_item(const hec_exec *exec, hec_tensor tensor, int32_t layer, int32_t item, int64_t floats) {
  for (size_t i = exec->n_open; i-- > 0;) {
    const hec_open_buffer_of *b = &exec->open[i];
    if (b->tensor != tensor || b->layer != layer)
      continue;
    for (int32_t k = 0; k < b->n_items; k++)
      if (b->items[k] == item)
        return (float *)(void *)b->at + k * floats;
  }
  return NULL;
}

static float *find_guest(const hec_exec *exec, hec_tensor tensor, int32_t layer, int32_t expert) {
  return find_item(exec, tensor, layer, expert, exec->options.expert_size);
}

float *hec_exec_guest_at(const hec_exec *exec, const hec_op *op, int32_t expert, bool grads) {
  float *guest = find_guest(exec, grads ? HEC_TENSOR_GUEST_GRAD : HEC_TENSOR_GUEST_PARAM, op->layer, expert);
  HEC_ASSERT(guest != NULL);
  return guest;
}

/* Whole experts are kept only where they are not sliced. */
static bool keeps_whole(const hec_exec *exec, int32_t layer, int32_t expert) {
  return exec->options.n_slices == 1 && hec_exec_keeps(exec, layer, expert, 0);
}

const float *hec_exec_params(const hec_exec *exec, const hec_exec_op *op, int32_t expert) {
  if (keeps_whole(exec, op->op.layer, expert))
    return hec_store_at(&exec->store, (int32_t)hec_row_of(exec, op->op.layer, expert), 0).params;
  const float *guest = find_guest(exec, HEC_TENSOR_GUEST_PARAM, op->op.layer, expert);
  HEC_ASSERT(guest != NULL);
  return guest;
}

float *hec_exec_grads(const hec_exec *exec, const hec_exec_op *op, int32_t expert, bool *guest) {
  *guest = !keeps_whole(exec, op->op.layer, expert);
  if (!*guest)
    return hec_store_at(&exec->store, (int32_t)hec_row_of(exec, op->op.layer, expert), 0).grads;
  float *grads = find_guest(exec, HEC_TENSOR_GUEST_GRAD, op->op.layer, expert);
  HEC_ASSERT(grads != NULL);
  return grads;
}

int32_t hec_exec_guests(const hec_exec *exec, const hec_exec_op *op) {
  const hec_open_buffer_of *b = find_open(exec, HEC_TENSOR_GUEST_GRAD, op->op.layer, op->op.micro_batch);
  return b ? b->n_items : 0;
}

int32_t hec_exec_guest(const hec_exec *exec, const hec_exec_op *op, int32_t i) {
  return find_open(exec, HEC_TENSOR_GUEST_GRAD, op->op.layer, op->op.micro_batch)->items[i];
}

float *hec_exec_parcel(hec_exec *exec, const hec_parcel *parcel, int32_t array, int64_t *n) {
  int64_t size = exec->options.expert_size, begin = hec_part_begin(size, parcel->part, parcel->n_parts);
  *n = hec_part_begin(size, parcel->part + 1, parcel->n_parts) - begin;
  bool own_part = parcel->n_parts == exec->options.n_slices;
  bool here = own_part ? hec_exec_keeps(exec, parcel->layer, parcel->expert, parcel->part)
                       : keeps_whole(exec, parcel->layer, parcel->expert);
  if (here) {
    int32_t row = (int32_t)hec_row_of(exec, parcel->layer, parcel->expert);
    hec_store_part at = hec_store_at(&exec->store, row, own_part ? parcel->part : 0);
    float *const of[] = {at.params, at.grads, at.first, at.second};
    return own_part ? of[array] : of[array] + begin;
  }
  float *guest =
      find_guest(exec, array == 0 ? HEC_TENSOR_GUEST_PARAM : HEC_TENSOR_GUEST_GRAD, parcel->layer, parcel->expert);
  if (guest)
    return guest + begin;
  return find_item(exec, array == 0 ? HEC_TENSOR_PART_PARAM : HEC_TENSOR_PART_GRAD, parcel->layer,
                   parcel->expert * parcel->n_parts + parcel->part, (size + parcel->n_parts - 1) / parcel->n_parts);
}

const hec_rows *hec_exec_rows(hec_exec *exec, const hec_exec_op *op) {
  const hec_rows **at = &exec->rows[op->op.micro_batch * exec->n_layers + op->op.layer];
  if (*at == NULL) {
    hec_rows *rows = HEC_NEW(&exec->step, hec_rows, 1);
    HEC_ASSERT(op->op.role == HEC_ROLE_PERMUTE); /* has all chunks */
    hec_rows_cells of = {.cells = exec->program->cells + op->op.cell_at,
                         .n_cells = op->op.n_cells,
                         .degree = op->op.degree,
                         .n_experts = exec->n_experts,
                         .n_ranks = exec->n_ranks,
                         .esp = exec->problem->esp};
    *rows = hec_rows_make(&exec->step, &of, exec->r);
    if (hec_token_routes[op->op.route]->relay)
      rows->relays = hec_relays_make(&exec->step, &of, hec_token_routes[op->op.route], exec->problem, exec->r);
    *at = rows;
  }
  return *at;
}

const hec_work *hec_exec_work(const hec_exec *exec, const hec_exec_op *op, int32_t *n) {
  const int32_t *at = exec->program->work_index + op->op.compute.work_at + exec->r;
  *n = at[1] - at[0];
  return exec->program->work + at[0];
}

uint32_t *hec_exec_counts(const hec_exec *exec, int32_t layer, int32_t micro_batch) {
  size_t table = (size_t)exec->n_ranks * (size_t)exec->n_experts;
  return exec->counts_host + ((size_t)micro_batch * (size_t)exec->n_layers + (size_t)layer) * table;
}
