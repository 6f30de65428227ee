/* Roles to mathematics. An experts operation has one step per expert with rows here. On a device it has one for all of
 * them, which wants their products together. Every other operation has one step. Where a layer is cut into chunks,
 * each of its experts operations has its chunk's rows. The gradient of an expert sums over the chunks in their order.
 *
 *   forward    attention  gate -> counts | permute -> rows leave and stay | experts | unpermute -> x
 *   backward   unpermute' -> rows of gradients | experts' | permute' -> dh2 | shared' gate' attention' -> dx | optimizer
 *
 * Pointers are resolved when an operation is posted, while its buffers are open; steps only compute. */
#include "runtime/exec/work.h"

#include "runtime/base/arena.h"
#include "runtime/exec/model/gate.h"
#include "runtime/exec/rows/node_work.h"
#include "runtime/exec/train/language.h"
#include "runtime/plan/replicas.h"

#include <string.h>

/* What a step needs, resolved. */
typedef struct {
  hec_block_kept kept;
  hec_dense dense;
  hec_assignments *assignments;
  float *x, *dx;
  float **row, **returned; /* [n assignments] */
  hec_piece *staying;      /* [n_staying] unpermute: computed rows that go among the returned ones */
  int32_t n_staying;
  hec_expert_rows *experts;
  int32_t n_experts;
  bool together;             /* all experts in one step */
  hec_node_work *nodes;      /* rows travel once per node; NULL: they do not */
  float *partial, *gathered; /* tensor parallelism: partial sums, and gradients, of the rows of all parts */
  float **zero;              /* [n_zero] gradients of guests without rows */
  int32_t n_zero;
} bound;

int64_t hec_work_workspace(const hec_model *model, int32_t tokens, int32_t n_micro_batches, int32_t assigned) {
  int64_t stream = (int64_t)tokens * model->moe.d_model;
  int64_t weights = 2 * (int64_t)n_micro_batches * model->n_blocks * assigned;
  return (2 * n_micro_batches + 1) * stream + weights + hec_model_scratch_size(model, tokens);
}

void hec_work_open(hec_work_state *work, hec_exec *exec, hec_arena *arena) {
  int64_t stream = (int64_t)work->tokens * work->model->moe.d_model;
  work->shards = hec_model_of_shards(work->model, hec_exec_problem(exec)->esp);
  work->parts = hec_model_of_parts(work->model, hec_exec_problem(exec)->mp);
  HEC_ASSERT(4.0 * (double)hec_block_kept_size(&work->parts, work->tokens) <=
             hec_exec_problem(exec)->bytes.activation_layer);
  work->x = hec_exec_workspace(exec);
  work->dx = work->x + work->n_micro_batches * stream;
  work->dh2 = work->dx + work->n_micro_batches * stream;
  work->weights = work->dh2 + stream;
  work->scratch = work->weights + 2 * (int64_t)work->n_micro_batches * work->model->n_blocks * work->assigned;
  work->assignments = HEC_NEW(arena, hec_assignments *, work->n_micro_batches * work->model->n_blocks);
}

static hec_assignments **assignments_of(hec_work_state *work, const hec_op *op) {
  return &work->assignments[op->micro_batch * work->model->n_blocks + op->layer];
}

/* A layer's in a micro-batch, made at its gate. */
static hec_assignments *new_assignments(hec_work_state *work, hec_exec *exec, const hec_op *op) {
  hec_assignments *new = HEC_NEW(hec_exec_step_arena(exec), hec_assignments, 1);
  int64_t at = (int64_t)op->micro_batch * work->model->n_blocks + op->layer;
  *new = hec_assignments_new(hec_exec_step_arena(exec), work->model, work->assigned,
                             work->weights + 2 * at * work->assigned);
  if (work->balance > 0)
    new->balance = HEC_NEW(hec_exec_step_arena(exec), float, work->model->n_experts);
  return new;
}

static float *row_at(float *rows, int32_t d, int32_t i) {
  return rows + (size_t)i * (size_t)d;
}

/* row[j]: where assignment j's row is: among those that leave, or where it is computed. */
static float **row_list(hec_exec *exec, const hec_rows *rows, int32_t d, float *leaving, float *staying) {
  float **row = HEC_NEW(hec_exec_step_arena(exec), float *, rows->n_assigned);
  for (int32_t j = 0; j < rows->n_assigned; j++)
    row[j] = rows->stays[j] >= 0 ? row_at(staying, d, rows->stays[j]) : row_at(leaving, d, rows->place[j]);
  return row;
}

static float **returned_list(hec_exec *exec, const hec_rows *rows, int32_t d, float *returned) {
  float **row = HEC_NEW(hec_exec_step_arena(exec), float *, rows->n_assigned);
  for (int32_t j = 0; j < rows->n_assigned; j++)
    row[j] = row_at(returned, d, rows->place[j]);
  return row;
}

static void bind_staying(hec_exec *exec, const hec_rows *rows, int32_t d, float *outputs, bound *b) {
  b->staying = HEC_NEW(hec_exec_step_arena(exec), hec_piece, rows->n_assigned);
  for (int32_t j = 0; j < rows->n_assigned; j++) {
    if (rows->stays[j] < 0)
      continue;
    hec_piece row = {b->returned[j], row_at(outputs, d, rows->stays[j]), d};
    hec_piece *last = b->n_staying > 0 ? &b->staying[b->n_staying - 1] : NULL;
    if (last && row.to == last->to + last->n && row.from == last->from + last->n)
      last->n += d;
    else
      b->staying[b->n_staying++] = row;
  }
}

static void bind_rows(hec_work_state *work, hec_exec *exec, hec_exec_op *op, bound *b) {
  const hec_rows *rows = hec_exec_rows(exec, op);
  int32_t d = work->model->moe.d_model;
  bool permute = op->op.role == HEC_ROLE_PERMUTE, backward = op->op.backward;
  if (permute) {
    float *leaving = NULL; /* nothing leaves any rank: there is no such buffer in backward */
    if (rows->leaving_at[rows->n_slots] > 0)
      leaving = hec_exec_tensor(exec, op, backward ? HEC_TENSOR_GRAD_RETURNED : HEC_TENSOR_SEND);
    float *staying = hec_exec_tensor(exec, op, backward ? HEC_TENSOR_GRAD_INPUT : HEC_TENSOR_INPUT);
    b->row = row_list(exec, rows, d, leaving, staying);
    return;
  }
  float *returned = hec_exec_tensor(exec, op, HEC_TENSOR_RETURNED);
  b->returned = returned_list(exec, rows, d, returned);
  if (backward)
    b->row = row_list(exec, rows, d, hec_exec_tensor(exec, op, HEC_TENSOR_GRAD_SEND),
                      hec_exec_tensor(exec, op, HEC_TENSOR_GRAD_OUTPUT));
  else
    bind_staying(exec, rows, d, hec_exec_tensor(exec, op, HEC_TENSOR_OUTPUT), b);
}

/* Of a layer that is cut, before its first chunk: in the others it adds to zero. */
static void bind_guests_without_rows(hec_exec *exec, hec_exec_op *op, bound *b, const hec_work *list, int32_t n) {
  int32_t n_guests = hec_exec_guests(exec, op), k = 0;
  b->zero = HEC_NEW(hec_exec_step_arena(exec), float *, n_guests);
  for (int32_t i = 0; i < n_guests; i++) {
    int32_t expert = hec_exec_guest(exec, op, i);
    while (k < n && list[k].item < expert)
      k++;
    bool guest;
    if (k == n || list[k].item != expert)
      b->zero[b->n_zero++] = hec_exec_grads(exec, op, expert, &guest);
  }
}

static void bind_experts(hec_work_state *work, hec_exec *exec, hec_exec_op *op, bound *b) {
  const hec_model *model = &work->shards;
  bool backward = op->op.backward;
  const hec_work *list = hec_exec_work(exec, op, &b->n_experts);
  const hec_rows *rows = hec_exec_rows(exec, op);
  int32_t d = model->moe.d_model, inner = model->moe.n_ffn_matrices * model->moe.d_ffn;
  int32_t first = rows->computed_at[op->op.chunk];
  float *in = hec_exec_tensor(exec, op, HEC_TENSOR_INPUT), *kept = row_at(in, d, rows->n_computed);
  float *out = hec_exec_tensor(exec, op, backward ? HEC_TENSOR_GRAD_OUTPUT : HEC_TENSOR_OUTPUT);
  float *din = backward ? hec_exec_tensor(exec, op, HEC_TENSOR_GRAD_INPUT) : NULL;
  b->experts = HEC_NEW(hec_exec_step_arena(exec), hec_expert_rows, b->n_experts);
  for (int32_t i = 0; i < b->n_experts; first += list[i++].rows) {
    hec_expert_rows *w = &b->experts[i];
    *w = (hec_expert_rows){.params = hec_exec_params(exec, op, list[i].item),
                           .n = list[i].rows,
                           .in = row_at(in, d, first),
                           .inner = row_at(kept, inner, first),
                           .out = row_at(out, d, first),
                           .din = backward ? row_at(din, d, first) : NULL};
    if (backward)
      w->grads = hec_exec_grads(exec, op, list[i].item, &w->first);
    w->first = w->first && op->op.chunk == 0;
  }
  if (backward && op->op.chunk == 0)
    bind_guests_without_rows(exec, op, b, list, b->n_experts);
  b->together = hec_exec_processor(exec)->streams != NULL;
  op->n_steps = (b->together ? b->n_experts > 0 : b->n_experts) + (b->n_zero > 0);
}

static bool between_nodes(hec_role role) {
  return role == HEC_ROLE_NODE_PERMUTE || role == HEC_ROLE_NODE_UNPERMUTE;
}

static void bind_nodes(hec_work_state *work, hec_exec *exec, hec_exec_op *op, bound *b) {
  b->nodes = hec_node_work_bind(exec, op,
                                &(hec_node_places){.assignments = b->assignments,
                                                   .h2 = b->kept.h2,
                                                   .x = b->x,
                                                   .dx = b->dx,
                                                   .dh2 = work->dh2,
                                                   .row = b->row,
                                                   .returned = b->returned,
                                                   .staying = b->staying,
                                                   .n_staying = b->n_staying});
}

static bool in_block(hec_role role) {
  return role == HEC_ROLE_ATTENTION || role == HEC_ROLE_TENSOR_REDUCE || role == HEC_ROLE_GATE ||
         role == HEC_ROLE_PERMUTE || role == HEC_ROLE_UNPERMUTE || role == HEC_ROLE_SHARED_EXPERTS ||
         between_nodes(role);
}

static void bind(void *context, hec_exec *exec, hec_exec_op *op) {
  hec_work_state *work = context;
  bound *b = op->data = HEC_NEW(hec_exec_step_arena(exec), bound, 1);
  int32_t layer = op->op.layer;
  op->n_steps = 1;
  b->x = hec_work_stream(work, work->x, op->op.micro_batch);
  b->dx = hec_work_stream(work, work->dx, op->op.micro_batch);
  if (in_block(op->op.role)) {
    b->kept = hec_block_kept_at(&work->parts, hec_model_whole_block(work->model, layer), work->tokens,
                                hec_exec_tensor(exec, op, HEC_TENSOR_BLOCK));
    b->dense = hec_exec_dense(exec, layer);
  }
  if (op->op.role == HEC_ROLE_GATE && !op->op.backward)
    *assignments_of(work, &op->op) = new_assignments(work, exec, &op->op);
  if (layer >= 0)
    b->assignments = *assignments_of(work, &op->op);
  if (op->op.role == HEC_ROLE_PERMUTE || op->op.role == HEC_ROLE_UNPERMUTE)
    bind_rows(work, exec, op, b);
  if (op->op.by_node && op->op.kind == HEC_OP_LOCAL)
    bind_nodes(work, exec, op, b);
  if (op->op.role == HEC_ROLE_EXPERTS)
    bind_experts(work, exec, op, b);
  bool attends = op->op.role == HEC_ROLE_ATTENTION || op->op.role == HEC_ROLE_TENSOR_REDUCE;
  if (attends && hec_model_parts(&work->parts) > 1)
    b->partial = hec_exec_tensor(exec, op, HEC_TENSOR_PARTIAL);
  if (b->partial && op->op.role == HEC_ROLE_ATTENTION && op->op.backward)
    b->gathered = hec_exec_tensor(exec, op, HEC_TENSOR_GATHERED);
}

static float *stream(void *context, const hec_op *op) {
  hec_work_state *work = context;
  return hec_work_stream(work, op->backward ? work->dx : work->x, op->micro_batch);
}

/* ---- Steps ---- */

/* The counts of all ranks have come: they were needed to plan the layer. */
static void balance(hec_work_state *work, hec_exec *exec, const hec_op *op, bound *b) {
  hec_balance of_all = {.counts = hec_exec_counts(exec, op->layer, op->micro_batch),
                        .n_ranks = hec_exec_problem(exec)->n_ranks,
                        .coefficient = work->balance};
  work->balance_loss += hec_assign_balance(work->model, &of_all, b->kept.probabilities, b->assignments);
}

/* The gate's own choice, by what it gave. */
static void choose(hec_work_state *work, hec_exec *exec, const hec_op *op, bound *b) {
  const hec_model *model = work->model;
  int64_t list = (int64_t)op->micro_batch * model->n_blocks + op->layer, n = (int64_t)work->tokens * model->n_experts;
  int64_t place = (int64_t)op->micro_batch * hec_exec_problem(exec)->n_ranks + work->rank;
  const hec_gate_call call = {.step = work->step,
                              .first = place * work->tokens,
                              .layer = op->layer,
                              .bias = work->bias ? work->bias + (int64_t)op->layer * model->n_experts : NULL,
                              .arena = hec_exec_step_arena(exec)};
  if (work->affinities)
    hec_exec_processor(exec)->math->to_host(hec_exec_processor(exec), work->affinities + list * n,
                                            b->kept.probabilities, n);
  hec_arena_mark mark = hec_arena_save(call.arena);
  model->gate->choose(model, &call, b->kept.probabilities, work->tokens, b->assignments);
  hec_arena_rewind(call.arena, mark);
}

static void gate(hec_work_state *work, hec_exec *exec, const hec_op *op, bound *b) {
  hec_processor *on = hec_exec_processor(exec);
  if (op->backward) {
    if (work->balance > 0)
      balance(work, exec, op, b);
    hec_block_gate_backward(on, &work->parts, b->dense.params, b->dense.grads, work->tokens, work->dh2, b->dx,
                            b->assignments, &b->kept, work->scratch);
    return;
  }
  hec_block_gate(on, &work->parts, b->dense.params, work->tokens, b->x, &b->kept, work->scratch);
  uint32_t *counts =
      hec_exec_counts(exec, op->layer, op->micro_batch) + (size_t)work->rank * (size_t)work->model->n_experts;
  if (work->loads)
    hec_assign_forced(&(hec_token_row){hec_load_row(&work->loads[op->micro_batch], op->layer, work->rank),
                                       work->model->n_experts, work->tokens,
                                       hec_model_whole_block(work->model, op->layer), work->rank},
                      b->assignments);
  else
    choose(work, exec, op, b);
  hec_assign_weights(on, work->model, b->kept.probabilities, b->assignments);
  for (int32_t e = 0; e < work->model->n_experts; e++)
    counts[e] = (uint32_t)(b->assignments->expert_at[e + 1] - b->assignments->expert_at[e]);
}

static void rows(hec_work_state *work, hec_exec *exec, const hec_op *op, bound *b) {
  hec_processor *on = hec_exec_processor(exec);
  const hec_arithmetic *math = on->math;
  int32_t d = work->model->moe.d_model;
  if (op->role == HEC_ROLE_PERMUTE && !op->backward) {
    math->permute(on, b->assignments, b->kept.h2, d, b->row);
  } else if (op->role == HEC_ROLE_PERMUTE) {
    math->zero(on, work->dh2, (int64_t)work->tokens * d);
    math->unpermute(on, b->assignments, b->row, d, work->dh2);
  } else if (op->backward) {
    math->uncombine(on, b->assignments, b->dx, b->returned, d, b->row);
  } else {
    math->copy(on, b->staying, b->n_staying);
    math->combine(on, b->assignments, b->returned, d, b->x);
  }
}

static void experts(hec_work_state *work, hec_exec *exec, const hec_exec_op *op, bound *b) {
  const hec_model *model = &work->shards;
  hec_processor *on = hec_exec_processor(exec);
  if (op->step == op->n_steps - 1 && b->n_zero > 0) {
    for (int32_t i = 0; i < b->n_zero; i++)
      on->math->zero(on, b->zero[i], hec_model_expert_size(model));
    return;
  }
  const hec_expert_rows *w = &b->experts[op->step];
  int32_t n = b->together ? b->n_experts : 1;
  if (op->op.backward)
    hec_experts_backward(on, model, w, n);
  else
    hec_experts_forward(on, model, w, n);
  if (op->op.backward && work->double_gradient && op->step == 0)
    on->math->scale(on, w->grads, 2, hec_model_expert_size(model));
}

static void zero(hec_exec *exec, float *x, int64_t n) {
  if (x)
    hec_exec_processor(exec)->math->zero(hec_exec_processor(exec), x, n);
}

/* Parts of `n` numbers that this rank updates, and has moments of. */
static hec_replica_own dense_own(const hec_problem *problem, int32_t rank) {
  hec_problem_part part = hec_problem_dense_part(problem, rank);
  return (hec_replica_own){part.place, 1, 1, part.of};
}

static hec_moments moments_of(const hec_store_part *at, hec_replica_own own, int32_t i, bool clear) {
  int32_t part = own.first + i * own.stride;
  int64_t begin = hec_part_begin(at->n, part, own.n_parts), n = hec_part_begin(at->n, part + 1, own.n_parts) - begin;
  return (hec_moments){at->params + begin, at->grads + begin, at->first + begin, at->second + begin, n, clear};
}

/* Only what is used takes memory. */
static void zero_moments(hec_exec *exec, const hec_store_part *at, hec_replica_own own) {
  for (int32_t i = 0; at->first && i < own.n; i++) {
    hec_moments m = moments_of(at, own, i, false);
    zero(exec, m.first, m.n);
    zero(exec, m.second, m.n);
  }
}

/* `host`: room for two blocks' parameters, for two experts'. */
static void init_dense(hec_work_state *work, hec_exec *exec, int32_t layer, float *host) {
  hec_processor *on = hec_exec_processor(exec);
  hec_dense d = hec_exec_dense(exec, layer);
  int32_t mp = hec_exec_problem(exec)->mp;
  float *kept = host;
  if (layer < 0) {
    hec_language_init(work->model, host);
  } else { /* of which this rank has a part; all there is at mp 1 */
    kept += hec_model_block(work->model).size;
    hec_model_init_block(work->model, hec_model_whole_block(work->model, layer), host);
    hec_dense_part_take(&(hec_dense_part){work->model, work->rank % mp, mp}, host, kept);
  }
  on->math->to_device(on, d.params, kept, d.n);
  zero_moments(exec, &(hec_store_part){d.params, d.grads, d.first, d.second, d.n},
               dense_own(hec_exec_problem(exec), work->rank));
}

static void init_part(hec_work_state *work, hec_exec *exec, int32_t row, int32_t part, float *host) {
  hec_processor *on = hec_exec_processor(exec);
  const hec_store *store = hec_exec_store(exec);
  hec_store_part at = hec_store_at(store, row, part);
  float *kept = host + hec_model_expert_size(work->model); /* the shard that this rank has; all there is at esp 1 */
  int32_t esp = hec_exec_problem(exec)->esp;
  hec_model_init_expert(work->model, hec_model_whole_block(work->model, row / work->model->n_experts),
                        row % work->model->n_experts, host);
  hec_expert_shard_take(&(hec_expert_shard){work->model, hec_exec_rank(exec) % esp, esp}, host, kept);
  on->math->to_device(on, at.params, kept + hec_part_begin(store->expert_size, part, store->n_parts), at.n);
  zero_moments(exec, &at, hec_replica_own_of(hec_exec_problem(exec), row % work->model->n_experts, work->rank));
}

void hec_work_init(hec_work_state *work, hec_exec *exec, hec_arena *arena) {
  const hec_store *store = hec_exec_store(exec);
  int64_t sizes[] = {2 * hec_model_expert_size(work->model), 2 * hec_model_block(work->model).size,
                     hec_language_size(work->model)};
  int64_t max = sizes[0] > sizes[1] ? sizes[0] : sizes[1];
  hec_arena_mark mark = hec_arena_save(arena);
  float *host = HEC_NEW(arena, float, max > sizes[2] ? max : sizes[2]);
  for (int32_t l = work->model->moe.vocabulary > 0 ? -1 : 0; l < work->model->n_blocks; l++)
    init_dense(work, exec, l, host);
  for (int32_t row = 0; row < store->n_rows; row++)
    for (int32_t part = 0; part < store->n_parts; part++)
      if (hec_store_has(store, row, part))
        init_part(work, exec, row, part, host);
  hec_arena_rewind(arena, mark);
  hec_work_zero_grads(work, exec);
}

void hec_work_zero_grads(hec_work_state *work, hec_exec *exec) {
  const hec_store *store = hec_exec_store(exec);
  for (int32_t l = -1; l < work->model->n_blocks; l++)
    zero(exec, hec_exec_dense(exec, l).grads, hec_exec_dense(exec, l).n);
  for (int32_t row = 0; row < store->n_rows; row++)
    for (int32_t part = 0; part < store->n_parts; part++)
      if (hec_store_has(store, row, part))
        zero(exec, hec_store_at(store, row, part).grads, hec_store_at(store, row, part).n);
}

/* Everything that this rank keeps, or its parts of it. The next iteration adds to the gradients. */
static void optimizer(hec_work_state *work, hec_exec *exec) {
  hec_processor *on = hec_exec_processor(exec);
  const hec_store *store = hec_exec_store(exec);
  const hec_problem *problem = hec_exec_problem(exec);
  int32_t n = 0, n_experts = work->model->n_experts, rank = (work->rank + work->update_another) % problem->n_ranks;
  int32_t max = work->model->n_blocks + 1 + store->n_rows * store->n_parts * (problem->zero ? problem->dp : 1);
  hec_moments *list = HEC_NEW(hec_exec_step_arena(exec), hec_moments, max);
  bool clear = !work->keep_grads && !problem->zero;
  for (int32_t l = -1; l < work->model->n_blocks; l++) {
    hec_dense d = hec_exec_dense(exec, l);
    list[n++] =
        moments_of(&(hec_store_part){d.params, d.grads, d.first, d.second, d.n}, dense_own(problem, rank), 0, clear);
  }
  for (int32_t row = 0; row < store->n_rows; row++)
    for (int32_t part = 0; part < store->n_parts; part++) {
      if (!hec_exec_keeps(exec, row / n_experts, row % n_experts, part))
        continue;
      hec_store_part at = hec_store_at(store, row, part);
      hec_replica_own own = hec_replica_own_of(problem, row % n_experts, work->rank);
      for (int32_t i = 0; i < own.n; i++)
        list[n++] = moments_of(&at, own, i, clear);
    }
  work->updated = 0;
  for (int32_t i = 0; i < n; i++)
    work->updated += list[i].n;
  on->math->adam(on, &work->model->adam, work->step, list, work->update_nothing ? 0 : n);
  if (!work->keep_grads && problem->zero) /* the other parts have what was sent */
    hec_work_zero_grads(work, exec);
}

static void attention(hec_work_state *work, hec_processor *on, const hec_op *op, bound *b) {
  hec_block_part part = {b->dense.params, b->dense.grads, work->tokens, work->rank % hec_model_parts(&work->parts)};
  if (op->role == HEC_ROLE_TENSOR_REDUCE)
    hec_block_part_attention_end(on, &work->parts, &part, op->backward, b->partial, op->backward ? b->dx : b->x,
                                 &b->kept);
  else if (b->partial && op->backward)
    hec_block_part_attention_backward(on, &work->parts, &part, b->gathered, b->partial, &b->kept, work->scratch);
  else if (b->partial)
    hec_block_part_attention(on, &work->parts, part.params, work->tokens, b->partial, &b->kept, work->scratch);
  else if (op->backward)
    hec_block_attention_backward(on, work->model, part.params, part.grads, work->tokens, b->dx, &b->kept,
                                 work->scratch);
  else
    hec_block_attention(on, work->model, part.params, work->tokens, b->x, &b->kept, work->scratch);
}

static void shared(hec_work_state *work, hec_processor *on, const hec_op *op, bound *b) {
  if (op->backward)
    hec_block_shared_backward(on, &work->parts, b->dense.params, b->dense.grads, work->tokens, b->kept.h2, b->dx,
                              work->dh2, work->scratch);
  else
    hec_block_shared(on, &work->parts, b->dense.params, work->tokens, b->kept.h2, b->x, work->scratch);
}

static void end_of_model(hec_work_state *work, hec_exec *exec, const hec_op *op, bound *b) {
  hec_work_end end = {.micro_batch = op->micro_batch,
                      .backward = op->backward,
                      .dense = hec_exec_dense(exec, -1),
                      .x = b->x,
                      .dx = b->dx};
  (op->role == HEC_ROLE_HEAD ? work->ends.head : work->ends.embedding)(work->ends.context, &end);
}

static void run(void *context, hec_exec *exec, hec_exec_op *op) {
  hec_work_state *work = context;
  bound *b = op->data;
  switch (op->op.role) {
  case HEC_ROLE_ATTENTION:
  case HEC_ROLE_TENSOR_REDUCE:
    attention(work, hec_exec_processor(exec), &op->op, b);
    break;
  case HEC_ROLE_GATE:
    gate(work, exec, &op->op, b);
    break;
  case HEC_ROLE_SHARED_EXPERTS:
    shared(work, hec_exec_processor(exec), &op->op, b);
    break;
  case HEC_ROLE_PERMUTE:
  case HEC_ROLE_UNPERMUTE:
  case HEC_ROLE_NODE_PERMUTE:
  case HEC_ROLE_NODE_UNPERMUTE:
    if (b->nodes)
      hec_node_work_run(b->nodes, hec_exec_processor(exec), &op->op);
    else
      rows(work, exec, &op->op, b);
    break;
  case HEC_ROLE_EXPERTS:
    experts(work, exec, op, b);
    break;
  case HEC_ROLE_EMBEDDING:
  case HEC_ROLE_HEAD:
    end_of_model(work, exec, &op->op, b);
    break;
  case HEC_ROLE_OPTIMIZER:
    optimizer(work, exec);
    break;
  default:
    hec_assert_failed("a role that can be executed", __FILE__, __LINE__);
  }
}

hec_work_table hec_work_table_of(hec_work_state *work) {
  return (hec_work_table){.bind = bind, .run = run, .stream = stream, .context = work};
}
