/* ExFlow's integer programme (arXiv 2401.08383) by local search:
 *
 *   maximise  sum over l, a, b of  flow_l[a][b] [ part_l(a) = part_(l+1)(b) ],   equally many experts on every part
 *
 * With the layers beside it fixed, a layer is a transportation problem of gains
 *
 *   gain[e][r] = sum over b on r of flow_l[e][b] + sum over a on r of flow_(l-1)[a][e]
 *
 * Experts change places in pairs while that gains, each with the other it gains most with (ties: the lower). That goes
 * layer after layer, forward and backward, until a sweep changes nothing. From two starts, of which the better end
 * stays (ties: the first):
 *   each layer once after the one before it, expert and part of the largest gain first, where there is room; kept if that
 *   is no worse than the start that was given;
 *   whole paths through all layers. A path is each expert followed by the one that takes most tokens from it. Paths
 *   are dealt to the parts by the tokens between them. That finds groups that no layer shows alone.
 * In whole numbers; every exchange raises the sum, so it ends. O(E^2 log E) per layer to lay paths, O(E^2) per layer and
 * pass, O(E^2 parts) per layer to follow. */
#include "runtime/plan/planners/affinity.h"

#include "runtime/base/status.h"
#include "runtime/plan/planners/order.h"

#include <stdbool.h>
#include <string.h>

enum { SWEEPS_MAX = 50, PASSES_MAX = 100 };

hec_affinity hec_affinity_new(hec_arena *arena, int32_t n_layers, int32_t n_experts, int32_t n_parts) {
  size_t cells = (size_t)n_layers * (size_t)n_experts, pairs = (size_t)n_experts * (size_t)n_experts;
  return (hec_affinity){.n_layers = n_layers,
                        .n_experts = n_experts,
                        .n_parts = n_parts,
                        .part = HEC_NEW(arena, int32_t, cells),
                        .gain = HEC_NEW(arena, uint64_t, (size_t)n_experts * (size_t)n_parts),
                        .start = HEC_NEW(arena, int32_t, cells),
                        .room = HEC_NEW(arena, int32_t, n_parts),
                        .best = HEC_NEW(arena, int32_t, cells),
                        .path = HEC_NEW(arena, int32_t, cells),
                        .of_path = HEC_NEW(arena, int32_t, n_experts),
                        .between = HEC_NEW(arena, uint64_t, pairs),
                        .key = HEC_NEW(arena, double, pairs),
                        .order = HEC_NEW(arena, int32_t, pairs)};
}

uint64_t hec_affinity_kept(const hec_affinity *f) {
  uint64_t kept = 0;
  size_t n = (size_t)f->n_experts;
  for (size_t l = 0; l + 1 < (size_t)f->n_layers; l++)
    for (size_t a = 0; a < n; a++)
      for (size_t b = 0; b < n; b++)
        kept += f->part[l * n + a] == f->part[(l + 1) * n + b] ? f->flow[(l * n + a) * n + b] : 0;
  return kept;
}

static void fill_gains(hec_affinity *f, int32_t layer, bool ahead) {
  size_t n = (size_t)f->n_experts, parts = (size_t)f->n_parts, l = (size_t)layer;
  memset(f->gain, 0, n * parts * sizeof *f->gain);
  for (size_t a = 0; a < n && l > 0; a++) {
    const uint64_t *row = f->flow + ((l - 1) * n + a) * n;
    for (size_t e = 0; e < n; e++)
      f->gain[e * parts + (size_t)f->part[(l - 1) * n + a]] += row[e];
  }
  for (size_t e = 0; e < n && ahead && layer + 1 < f->n_layers; e++) {
    const uint64_t *row = f->flow + (l * n + e) * n;
    for (size_t b = 0; b < n; b++)
      f->gain[e * parts + (size_t)f->part[(l + 1) * n + b]] += row[b];
  }
}

static bool may_exchange(const hec_affinity *f, int32_t p, int32_t q) {
  return p != q && (!f->pool || f->pool[p] == f->pool[q]);
}

/* The other expert with which e gains most; -1: none. */
static int32_t best_other(const hec_affinity *f, const int32_t *part, int32_t e) {
  const uint64_t *gain = f->gain;
  int32_t n = f->n_parts, best = -1;
  uint64_t max = 0;
  for (int32_t i = 0; i < f->n_experts; i++) {
    if (!may_exchange(f, part[e], part[i]))
      continue;
    uint64_t now = gain[e * n + part[e]] + gain[i * n + part[i]], then = gain[e * n + part[i]] + gain[i * n + part[e]];
    if (then > now && then - now > max) {
      max = then - now;
      best = i;
    }
  }
  return best;
}

static bool improve(hec_affinity *f, int32_t layer) {
  int32_t *part = f->part + (ptrdiff_t)layer * f->n_experts;
  bool changed = true, any = false;
  fill_gains(f, layer, true);
  for (int32_t pass = 0; pass < PASSES_MAX && changed; pass++) {
    changed = false;
    for (int32_t e = 0; e < f->n_experts; e++) {
      int32_t other = best_other(f, part, e);
      if (other < 0)
        continue;
      int32_t swapped = part[e];
      part[e] = part[other];
      part[other] = swapped;
      changed = any = true;
    }
  }
  return any;
}

/* Experts of the layer anew by their gains: as many to each part as stood there, each within its pool. */
static void follow_layer(hec_affinity *f, int32_t layer) {
  int32_t n = f->n_experts, *part = f->part + (ptrdiff_t)layer * n;
  const int32_t *was = f->start + (ptrdiff_t)layer * n;
  fill_gains(f, layer, false);
  memset(f->room, 0, (size_t)f->n_parts * sizeof *f->room);
  for (int32_t e = 0; e < n; e++) {
    f->room[was[e]]++;
    part[e] = -1;
  }
  for (int32_t k = 0; k < n; k++) {
    int32_t best = -1, to = -1;
    uint64_t max = 0;
    for (int32_t e = 0; e < n; e++)
      for (int32_t p = 0; p < f->n_parts && part[e] < 0; p++) {
        uint64_t gain = f->gain[e * f->n_parts + p];
        if (f->room[p] == 0 || (p != was[e] && !may_exchange(f, p, was[e])) || (best >= 0 && gain <= max))
          continue;
        best = e;
        to = p;
        max = gain;
      }
    HEC_ASSERT(best >= 0);
    part[best] = to;
    f->room[to]--;
  }
}

/* Paths through all layers, one expert of each: layer after layer, the pairs of experts with most tokens first, within a
 * pool. path[l][e]: the expert of layer 0 that it begins with. */
static void lay_paths(hec_affinity *f) {
  int32_t n = f->n_experts;
  for (int32_t e = 0; e < n; e++)
    f->path[e] = e;
  for (int32_t l = 0; l + 1 < f->n_layers; l++) {
    int32_t *from = f->path + (ptrdiff_t)l * n, *to = from + n, *was = f->start + (ptrdiff_t)l * n;
    for (int32_t i = 0; i < n * n; i++)
      f->key[i] = (double)f->flow[(ptrdiff_t)l * n * n + i];
    hec_order_descending(f->key, n * n, f->order);
    memset(to, -1, (size_t)n * sizeof *to);
    memset(f->of_path, -1, (size_t)n * sizeof *f->of_path); /* who has one behind it */
    for (int32_t k = 0; k < n * n; k++) {
      int32_t a = f->order[k] / n, b = f->order[k] % n;
      if (f->of_path[a] >= 0 || to[b] >= 0 || (f->pool && f->pool[was[a]] != f->pool[was[n + b]]))
        continue;
      f->of_path[a] = b;
      to[b] = from[a];
    }
  }
}

/* Whole paths to parts, part by part: the first that is left, then whoever has most tokens with those there. */
static void deal_paths(hec_affinity *f) {
  int32_t n = f->n_experts;
  memset(f->between, 0, (size_t)n * (size_t)n * sizeof *f->between);
  for (int32_t l = 0; l + 1 < f->n_layers; l++)
    for (int32_t i = 0; i < n * n; i++) {
      int32_t a = f->path[l * n + i / n], b = f->path[(l + 1) * n + i % n];
      f->between[a * n + b] += f->flow[(ptrdiff_t)l * n * n + i];
    }
  memset(f->of_path, -1, (size_t)n * sizeof *f->of_path);
  for (int32_t p = 0; p < f->n_parts; p++) {
    int32_t room = 0;
    for (int32_t e = 0; e < n; e++) {
      room += f->start[e] == p;
      f->gain[e] = 0;
    }
    for (; room > 0; room--) {
      int32_t best = -1;
      for (int32_t e = 0; e < n; e++)
        if (f->of_path[e] < 0 && (p == f->start[e] || may_exchange(f, p, f->start[e])) &&
            (best < 0 || f->gain[e] > f->gain[best]))
          best = e;
      HEC_ASSERT(best >= 0);
      f->of_path[best] = p;
      for (int32_t e = 0; e < n; e++)
        f->gain[e] += f->between[e * n + best] + f->between[best * n + e];
    }
  }
  for (int32_t i = 0; i < f->n_layers * n; i++)
    f->part[i] = f->of_path[f->path[i]];
}

static void sweep(hec_affinity *f) {
  bool changed = true;
  for (int32_t s = 0; s < SWEEPS_MAX && changed; s++) {
    changed = false;
    for (int32_t l = 1; l < f->n_layers; l++)
      changed |= improve(f, l);
    for (int32_t l = f->n_layers - 2; l >= 0; l--)
      changed |= improve(f, l);
  }
}

void hec_affinity_make(hec_affinity *f) {
  size_t bytes = (size_t)f->n_layers * (size_t)f->n_experts * sizeof *f->part;
  uint64_t started = hec_affinity_kept(f);
  if (f->n_layers < 2)
    return;
  memcpy(f->start, f->part, bytes);
  for (int32_t l = 1; l < f->n_layers; l++)
    follow_layer(f, l);
  if (hec_affinity_kept(f) < started)
    memcpy(f->part, f->start, bytes);
  sweep(f);
  uint64_t kept = hec_affinity_kept(f);
  memcpy(f->best, f->part, bytes);
  lay_paths(f);
  deal_paths(f);
  sweep(f);
  if (hec_affinity_kept(f) <= kept)
    memcpy(f->part, f->best, bytes);
}
