/* Binding of token exchanges over relays: which rows a message takes from where (relays.h), in either direction. Towards the
 * experts a rank's messages are, with p the other end and r this rank,
 *
 *   inside    out  assigned rows for p, and for those d whose relay is p     in  computed rows of p; RELAYED of source p
 *   between   out  assigned rows for p; ALIGNED for p                        in  computed rows of p, and of those s whose
 *                                                                                relay is p
 *
 * and on the way back in and out are exchanged, with the buffers of that way. O(ranks^2 + runs of the chunk). */
#include "runtime/exec/exec_state.h"
#include "runtime/exec/rows/relays.h"
#include "runtime/plan/problem.h"

typedef struct {
  hec_exec *exec;
  const hec_rows *rows;
  const hec_relays *relays;
  int32_t chunk, d;
  float *assigned, *computed, *resting; /* resting: RELAYED or ALIGNED */
  hec_segment *segment;                 /* the next to be written */
  hec_segment *first;                   /* of the message */
} binding;

/* Transports cut as they like: what follows without a gap is one segment. */
static void add_rows(binding *b, float *rows, int32_t first, int32_t n) {
  char *at = (char *)(rows + (size_t)first * (size_t)b->d);
  int64_t bytes = (int64_t)n * b->d * (int64_t)sizeof(float);
  hec_segment *last = b->segment > b->first ? b->segment - 1 : NULL;
  if (last && !b->exec->rank->link && (char *)last->at + last->bytes == at)
    last->bytes += bytes;
  else
    *b->segment++ = (hec_segment){at, bytes};
}

static void add_runs(binding *b, float *rows, const hec_rows_runs *runs, int32_t peer) {
  int32_t slot = b->chunk * b->exec->n_ranks + peer;
  for (int32_t i = runs->at[slot]; i < runs->at[slot + 1]; i++)
    add_rows(b, rows, runs->run[i].first, runs->run[i].rows);
}

/* Rows that come to rest at p, a block for each destination. */
static void add_blocks(binding *b, int32_t p) {
  for (int32_t d = 0; d < b->exec->n_ranks; d++) {
    int32_t slot = b->chunk * b->exec->n_ranks + d, *at = b->rows->leaving_at + slot;
    if (d != p && b->relays->over_to[d] == p && at[1] > at[0])
      add_rows(b, b->assigned, at[0], at[1] - at[0]);
  }
}

/* The same at the relay. */
static void add_resting_of(binding *b, int32_t source) {
  const hec_relays *relays = b->relays;
  for (int32_t k = relays->at[b->chunk]; k < relays->at[b->chunk + 1];) {
    const hec_relay_run *run = &relays->run[relays->by_source[k++]];
    int32_t rows = run->rows;
    if (run->source != source)
      continue;
    for (; k < relays->at[b->chunk + 1]; k++) {
      const hec_relay_run *next = &relays->run[relays->by_source[k]];
      if (next->source != source || next->rank != run->rank)
        break;
      rows += next->rows;
    }
    add_rows(b, b->resting, run->relayed, rows);
  }
}

static void add_resting_for(binding *b, int32_t rank) {
  const hec_relays *relays = b->relays;
  for (int32_t i = relays->at[b->chunk]; i < relays->at[b->chunk + 1]; i++)
    if (relays->run[i].rank == rank)
      add_rows(b, b->resting, relays->run[i].aligned, relays->run[i].rows);
}

/* What this rank has with p: on the side of the rows' tokens, and on that of their experts. */
static void add_out(binding *b, bool inside, int32_t p) {
  if (b->relays->over_to[p] == (inside ? p : b->exec->r))
    add_runs(b, b->assigned, &b->rows->leave, p);
  if (inside)
    add_blocks(b, p);
  else
    add_resting_for(b, p);
}

static void add_in(binding *b, bool inside, int32_t p) {
  if (b->relays->over_from[p] == (inside ? b->exec->r : p))
    add_runs(b, b->computed, &b->rows->arrive, p);
  if (inside)
    add_resting_of(b, p);
  for (int32_t s = 0; !inside && s < b->exec->n_ranks; s++)
    if (s != p && s != b->exec->r && b->relays->over_from[s] == p)
      add_runs(b, b->computed, &b->rows->arrive, s);
}

void hec_relays_bind(hec_exec *exec, hec_exec_op *op, float *assigned, float *computed) {
  const hec_rows *rows = hec_exec_rows(exec, op);
  const hec_relays *relays = rows->relays;
  bool inside = op->op.role == HEC_ROLE_DISPATCH_INSIDE || op->op.role == HEC_ROLE_COMBINE_INSIDE,
       to_experts = !op->op.reverse;
  int32_t n_resting = relays->at[op->op.chunk + 1] - relays->at[op->op.chunk], n_out = 0, n_in = 0;
  hec_post *post = &op->exchange->post;
  binding b = {.exec = exec,
               .rows = rows,
               .relays = relays,
               .chunk = op->op.chunk,
               .d = exec->problem->moe->d_model,
               .assigned = assigned,
               .computed = computed,
               .segment =
                   HEC_NEW(&exec->step, hec_segment, exec->n_ranks + rows->leave.n + rows->arrive.n + n_resting)};
  if (n_resting > 0)
    b.resting = hec_exec_tensor(exec, op, inside ? HEC_TENSOR_RELAYED : HEC_TENSOR_ALIGNED);
  for (int32_t p = 0; p < exec->n_ranks; p++) {
    if (p == exec->r)
      continue;
    b.first = b.segment;
    add_out(&b, inside, p);
    hec_message_add(to_experts ? post->sends : post->receives, &n_out, p, b.first, (int32_t)(b.segment - b.first));
    b.first = b.segment;
    add_in(&b, inside, p);
    hec_message_add(to_experts ? post->receives : post->sends, &n_in, p, b.first, (int32_t)(b.segment - b.first));
  }
  post->n_sends = to_experts ? n_out : n_in;
  post->n_receives = to_experts ? n_in : n_out;
}

void hec_alignment_bind(hec_exec *exec, hec_exec_op *op) {
  const hec_relays *relays = hec_exec_rows(exec, op)->relays;
  int32_t first = relays->at[op->op.chunk], n = relays->at[op->op.chunk + 1] - first, d = exec->problem->moe->d_model;
  if (op->op.local.bytes_at < 0 || n == 0) /* the end of both exchanges */
    return;
  float *relayed = hec_exec_tensor(exec, op, HEC_TENSOR_RELAYED),
        *aligned = hec_exec_tensor(exec, op, HEC_TENSOR_ALIGNED);
  hec_exchange_state *x = op->exchange = HEC_NEW(&exec->step, hec_exchange_state, 1);
  x->own = HEC_NEW(&exec->step, hec_piece, n);
  for (int32_t i = 0; i < n; i++) {
    const hec_relay_run *run = &relays->run[first + i];
    hec_piece piece = {aligned + (size_t)run->aligned * (size_t)d, relayed + (size_t)run->relayed * (size_t)d,
                       (int64_t)run->rows * d};
    if (op->op.reverse)
      piece =
          (hec_piece){relayed + (size_t)run->relayed * (size_t)d, aligned + (size_t)run->aligned * (size_t)d, piece.n};
    hec_piece *last = x->n_own > 0 ? &x->own[x->n_own - 1] : NULL;
    if (last && piece.to == last->to + last->n && piece.from == last->from + last->n)
      last->n += piece.n;
    else
      x->own[x->n_own++] = piece;
  }
  op->n_steps = 1;
}
