/* See the header. d floats a row; numbers are weights forward, their gradients backward:
 *
 *   node permute     rows = h2[token]             numbers = weights                |  dh2[token] += rows,  gradients = numbers
 *   permute          row = h2[token], arrived[..]  weights of both lists           |  dh2, sums += row;  numbers = gradients
 *   unpermute        x[token] += w row;  sums = w row                              |  row = w dx[token], w arrived[..]
 *   node unpermute   x[token] += rows                                              |  rows = dx[token]
 *                                                                          forward | backward */
#include "runtime/exec/rows/node_work.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"

struct hec_node_work {
  hec_node_places at;
  const hec_node_rows *rows;
  int32_t d, tokens;             /* the assignments' own number is not there before the gate has run */
  float *buffer;                 /* between nodes: rows, then numbers; inside: what arrived, or sums */
  hec_assignments sent;          /* own tokens that go to proxies */
  hec_assignments list[2];       /* own, others */
  float **row[2], **returned[2]; /* of each, [n] */
  hec_piece *pieces;             /* [n_pieces] numbers */
  int32_t n_pieces;
};

/* Numbers one by one, those in a row together: to[i] = from[index[i]], or to[index[i]] = from[i]. */
static void add_pieces(hec_node_work *w, float *to, const float *from, const int32_t *index, int32_t n, bool spread) {
  for (int32_t i = 0; i < n; i++) {
    hec_piece piece = {spread ? to + index[i] : to + i, spread ? from + i : from + index[i], 1};
    hec_piece *last = i > 0 ? &w->pieces[w->n_pieces - 1] : NULL;
    if (last && piece.to == last->to + last->n && piece.from == last->from + last->n)
      last->n++;
    else
      w->pieces[w->n_pieces++] = piece;
  }
}

static float **rows_of(hec_arena *arena, float **row, const hec_node_list *list) {
  float **some = HEC_NEW(arena, float *, list->n);
  for (int32_t i = 0; row && i < list->n; i++)
    some[i] = row[list->place[i]];
  return some;
}

/* Weights stand: own, others, then gradients likewise. */
static void bind_lists(hec_arena *arena, hec_node_work *w, float *weights) {
  const hec_node_list *lists[2] = {&w->rows->own, &w->rows->others};
  int32_t n = lists[0]->n + lists[1]->n;
  for (int32_t k = 0; k < 2; k++) {
    float *at = weights + (k == 1 ? lists[0]->n : 0);
    w->list[k] = (hec_assignments){.n = lists[k]->n,
                                   .n_tokens = k == 0 ? w->tokens : w->rows->from.n_rows,
                                   .capacity = lists[k]->n,
                                   .token = lists[k]->token,
                                   .weight = at,
                                   .weight_grad = at + n};
    w->row[k] = rows_of(arena, w->at.row, lists[k]);
    w->returned[k] = rows_of(arena, w->at.returned, lists[k]);
  }
}

/* Permutes alone move numbers inside nodes: where they are from, or go to. */
static void bind_numbers(hec_node_work *w, bool backward) {
  const hec_node_rows *r = w->rows;
  hec_assignments *a = w->at.assignments;
  float *numbers = w->buffer + (size_t)r->from.n_rows * (size_t)w->d;
  if (backward) {
    add_pieces(w, a->weight_grad, w->list[0].weight_grad, r->own.number, r->own.n, true);
    add_pieces(w, numbers, w->list[1].weight_grad, r->others.number, r->others.n, true);
  } else {
    add_pieces(w, w->list[0].weight, a->weight, r->own.number, r->own.n, false);
    add_pieces(w, w->list[1].weight, numbers, r->others.number, r->others.n, false);
  }
}

static void bind_between(hec_arena *arena, hec_node_work *w, const hec_op *op) {
  const hec_node_rows *r = w->rows;
  hec_assignments *a = w->at.assignments;
  float *numbers = w->buffer + (size_t)r->to.n_rows * (size_t)w->d;
  w->sent = (hec_assignments){
      .n = r->to.n_rows, .n_tokens = w->tokens, .capacity = r->to.n_rows, .token = r->token, .weight = numbers};
  w->row[0] = HEC_NEW(arena, float *, r->to.n_rows);
  for (int32_t i = 0; i < r->to.n_rows; i++)
    w->row[0][i] = w->buffer + (size_t)i * (size_t)w->d;
  if (op->role == HEC_ROLE_NODE_PERMUTE && op->backward)
    add_pieces(w, a->weight_grad, numbers, r->number, r->to.n_numbers, true);
  else if (op->role == HEC_ROLE_NODE_PERMUTE)
    add_pieces(w, numbers, a->weight, r->number, r->to.n_numbers, false);
}

hec_node_work *hec_node_work_bind(hec_exec *exec, const hec_exec_op *op, const hec_node_places *places) {
  hec_arena *arena = hec_exec_step_arena(exec);
  bool between = op->op.role == HEC_ROLE_NODE_PERMUTE || op->op.role == HEC_ROLE_NODE_UNPERMUTE;
  bool out = op->op.backward == (op->op.role == HEC_ROLE_UNPERMUTE || op->op.role == HEC_ROLE_NODE_UNPERMUTE);
  hec_node_work *w = HEC_NEW(arena, hec_node_work, 1);
  *w = (hec_node_work){.at = *places,
                       .rows = hec_exec_node_rows(exec, op),
                       .d = hec_exec_problem(exec)->moe->d_model,
                       .tokens = hec_exec_problem(exec)->tokens};
  w->pieces = HEC_NEW(arena, hec_piece, w->rows->to.n_numbers + w->rows->own.n + w->rows->others.n);
  if (between) {
    w->buffer = hec_exec_tensor(exec, op, out ? HEC_TENSOR_NODE_SEND : HEC_TENSOR_NODE_RETURNED);
    bind_between(arena, w, &op->op);
    return w;
  }
  w->buffer = hec_exec_tensor(exec, op, out ? HEC_TENSOR_NODE_ARRIVED : HEC_TENSOR_NODE_PARTIAL);
  bind_lists(arena, w, hec_exec_tensor(exec, op, HEC_TENSOR_NODE_WEIGHTS));
  if (op->op.role == HEC_ROLE_PERMUTE)
    bind_numbers(w, op->op.backward);
  return w;
}

/* ---- Steps ---- */

static void zero_sums(hec_node_work *w, hec_processor *on) {
  on->math->zero(on, w->buffer, (int64_t)w->rows->from.n_rows * w->d);
}

static void permute(hec_node_work *w, hec_processor *on, bool backward) {
  const hec_arithmetic *math = on->math;
  if (backward) {
    math->zero(on, w->at.dh2, (int64_t)w->list[0].n_tokens * w->d);
    math->unpermute(on, &w->list[0], w->row[0], w->d, w->at.dh2);
    zero_sums(w, on);
    math->unpermute(on, &w->list[1], w->row[1], w->d, w->buffer);
    math->copy(on, w->pieces, w->n_pieces);
  } else {
    math->copy(on, w->pieces, w->n_pieces);
    math->permute(on, &w->list[0], w->at.h2, w->d, w->row[0]);
    math->permute(on, &w->list[1], w->buffer, w->d, w->row[1]);
  }
}

static void unpermute(hec_node_work *w, hec_processor *on, bool backward) {
  const hec_arithmetic *math = on->math;
  if (backward) {
    math->uncombine(on, &w->list[0], w->at.dx, w->returned[0], w->d, w->row[0]);
    math->uncombine(on, &w->list[1], w->buffer, w->returned[1], w->d, w->row[1]);
  } else {
    math->copy(on, w->at.staying, w->at.n_staying);
    math->combine(on, &w->list[0], w->returned[0], w->d, w->at.x);
    zero_sums(w, on);
    math->combine(on, &w->list[1], w->returned[1], w->d, w->buffer);
  }
}

void hec_node_work_run(hec_node_work *w, hec_processor *on, const hec_op *op) {
  const hec_arithmetic *math = on->math;
  switch (op->role) {
  case HEC_ROLE_PERMUTE:
    permute(w, on, op->backward);
    break;
  case HEC_ROLE_UNPERMUTE:
    unpermute(w, on, op->backward);
    break;
  case HEC_ROLE_NODE_PERMUTE:
    if (op->backward)
      math->unpermute(on, &w->sent, w->row[0], w->d, w->at.dh2);
    else
      math->permute(on, &w->sent, w->at.h2, w->d, w->row[0]);
    math->copy(on, w->pieces, w->n_pieces);
    break;
  default: /* node unpermute */
    if (op->backward)
      math->permute(on, &w->sent, w->at.dx, w->d, w->row[0]);
    else
      math->unpermute(on, &w->sent, w->row[0], w->d, w->at.x);
    break;
  }
}
