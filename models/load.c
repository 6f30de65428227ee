/* Expert loads: change of the number of sources and of the number of tokens, in exact integers.
 *
 * Spread is a sum over sources that fall on one rank, or a division of one source over a group of ranks.
 * Scale is the method of largest remainders: count c of a layer with total T becomes floor(c*A/T). Then A - sum are
 * missing: one each goes to the cells with the largest c*A mod T. Selection (Hoare's FIND) finds these cells in
 * O(cells) expected. The order (remainder down, cell up) is total, so the chosen set does not depend on pivots.
 */
#include "models/load.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

hec_load hec_load_new(hec_arena *arena, int32_t n_layers, int32_t n_sources, int32_t n_experts) {
  HEC_ASSERT(n_layers >= 0 && n_sources >= 0 && n_experts >= 0);
  size_t rows = (size_t)n_layers * (size_t)n_sources;
  size_t row_bytes = (size_t)n_experts * sizeof(uint32_t);
  return (hec_load){n_layers, n_sources, n_experts, hec_arena_alloc(arena, rows, row_bytes)};
}

void hec_load_copy(const hec_load *from, hec_load *to) {
  HEC_ASSERT(from->n_layers == to->n_layers && from->n_sources == to->n_sources && from->n_experts == to->n_experts);
  if (hec_load_cells(from) > 0)
    memcpy(to->counts, from->counts, hec_load_cells(from) * sizeof *from->counts);
}

/* First rank r with floor(r*S/R) == s, that is ceil(s*R/S). */
static int32_t first_rank_of(int32_t s, int32_t n_sources, int32_t n_ranks) {
  return (int32_t)(((int64_t)s * n_ranks + n_sources - 1) / n_sources);
}

static hec_status gather_sources(const hec_load *from, hec_load *to, int32_t layer) {
  for (int32_t s = 0; s < from->n_sources; s++) {
    int32_t r = (int32_t)((int64_t)s * to->n_sources / from->n_sources);
    const uint32_t *in = hec_load_row(from, layer, s);
    uint32_t *out = hec_load_row(to, layer, r);
    for (int32_t e = 0; e < from->n_experts; e++) {
      uint64_t sum = (uint64_t)out[e] + in[e];
      if (sum > UINT32_MAX)
        return hec_fail(HEC_FAILED,
                        "layer %d, expert %d: the sources put on rank %d hold %llu assignments, more than 2^32-1",
                        (int)layer, (int)e, (int)r, (unsigned long long)sum);
      out[e] = (uint32_t)sum;
    }
  }
  return HEC_OK;
}

/* `from` may lie in the first rows of `to`: a source's ranks do not begin before it, so the last one is divided first. */
static void divide_sources(const hec_load *from, hec_load *to, int32_t layer) {
  for (int32_t s = from->n_sources - 1; s >= 0; s--) {
    int32_t first = first_rank_of(s, from->n_sources, to->n_sources);
    uint32_t group = (uint32_t)(first_rank_of(s + 1, from->n_sources, to->n_sources) - first);
    const uint32_t *in = hec_load_row(from, layer, s);
    for (uint32_t g = group; g-- > 0;) {
      uint32_t *out = hec_load_row(to, layer, first + (int32_t)g);
      for (int32_t e = 0; e < from->n_experts; e++) {
        uint32_t turn = (g + group - (uint32_t)e % group) % group; /* 0 for the rank where remainders start */
        out[e] = in[e] / group + (turn < in[e] % group);
      }
    }
  }
}

hec_status hec_load_spread(const hec_load *from, hec_load *to) {
  HEC_ASSERT(from->n_layers == to->n_layers && from->n_experts == to->n_experts);
  HEC_ASSERT(from->n_sources > 0 && to->n_sources > 0 && from->counts != to->counts);
  for (int32_t layer = 0; layer < from->n_layers; layer++) {
    if (from->n_sources < to->n_sources) {
      divide_sources(from, to, layer);
      continue;
    }
    for (int32_t r = 0; r < to->n_sources; r++)
      for (int32_t e = 0; e < to->n_experts; e++)
        hec_load_row(to, layer, r)[e] = 0;
    HEC_TRY(gather_sources(from, to, layer));
  }
  return HEC_OK;
}

hec_status hec_load_fit(const hec_load *from, uint64_t assignments, hec_load *to, hec_load_remainder *order) {
  if (from->n_sources >= to->n_sources) {
    HEC_TRY(hec_load_spread(from, to));
    hec_load_scale(to, assignments, order);
    return HEC_OK;
  }
  HEC_ASSERT(from->n_layers == to->n_layers && from->n_experts == to->n_experts && from->n_sources > 0);
  for (int32_t layer = 0; layer < from->n_layers; layer++) {
    hec_load all = {1, to->n_sources, to->n_experts, hec_load_row(to, layer, 0)};
    hec_load scaled = {1, from->n_sources, from->n_experts, all.counts};
    hec_load_copy(&(hec_load){1, from->n_sources, from->n_experts, hec_load_row(from, layer, 0)}, &scaled);
    hec_load_scale(&scaled, assignments, order);
    divide_sources(&scaled, &all, 0);
  }
  return HEC_OK;
}

uint64_t hec_load_layer_total(const hec_load *load, int32_t layer) {
  const uint32_t *counts = hec_load_row(load, layer, 0);
  size_t cells = (size_t)load->n_sources * (size_t)load->n_experts;
  uint64_t total = 0;
  for (size_t i = 0; i < cells; i++)
    total += counts[i];
  return total;
}

uint64_t hec_load_cap(hec_load *load, int32_t layer, uint32_t capacity) {
  uint32_t *counts = hec_load_row(load, layer, 0);
  size_t cells = (size_t)load->n_sources * (size_t)load->n_experts;
  uint64_t dropped = 0;
  for (size_t i = 0; i < cells; i++) {
    dropped += counts[i] > capacity ? counts[i] - capacity : 0;
    counts[i] = counts[i] > capacity ? capacity : counts[i];
  }
  return dropped;
}

void hec_load_totals(const hec_load *load, int32_t layer, int32_t first, int32_t n, uint64_t *total) {
  int32_t n_experts = load->n_experts;
  memset(total, 0, (size_t)n_experts * sizeof *total);
  for (int32_t source = first; source < first + n; source++) {
    const uint32_t *count = hec_load_row(load, layer, source);
    for (int32_t e = 0; e < n_experts; e++)
      total[e] += count[e];
  }
}

static bool comes_first(hec_load_remainder a, hec_load_remainder b) {
  return a.remainder != b.remainder ? a.remainder > b.remainder : a.cell < b.cell;
}

/* Reorders so that the first k of n elements are the k that come first (Hoare's FIND for position k, then a[k] is
 * right). */
static void select_first(hec_load_remainder *a, size_t n, size_t k) {
  uint32_t random = 2463534242u; /* pivots at random places: no input is slow on purpose */
  ptrdiff_t low = 0, high = (ptrdiff_t)n - 1, want = (ptrdiff_t)k;
  while (low < high && want <= high) {
    random ^= random << 13, random ^= random >> 17, random ^= random << 5;
    hec_load_remainder pivot = a[low + (ptrdiff_t)(random % (uint64_t)(high - low + 1))];
    ptrdiff_t i = low, j = high;
    while (i <= j) {
      while (comes_first(a[i], pivot))
        i++;
      while (comes_first(pivot, a[j]))
        j--;
      if (i <= j) {
        hec_load_remainder t = a[i];
        a[i++] = a[j];
        a[j--] = t;
      }
    }
    if (j < want)
      low = i;
    if (want < i)
      high = j;
  }
}

void hec_load_scale(hec_load *load, uint64_t assignments, hec_load_remainder *order) {
  HEC_ASSERT(assignments <= UINT32_MAX);
  size_t cells = (size_t)load->n_sources * (size_t)load->n_experts;
  HEC_ASSERT(cells <= UINT32_MAX);
  for (int32_t layer = 0; layer < load->n_layers; layer++) {
    uint64_t total = hec_load_layer_total(load, layer), given = 0;
    if (total == 0 || total == assignments)
      continue;
    uint32_t *counts = hec_load_row(load, layer, 0);
    size_t n = 0;
    for (size_t i = 0; i < cells; i++) {
      uint64_t product = counts[i] * assignments; /* below 2^64: both below 2^32 */
      counts[i] = (uint32_t)(product / total);
      given += counts[i];
      if (product % total != 0)
        order[n++] = (hec_load_remainder){product % total, (uint32_t)i};
    }
    size_t missing = (size_t)(assignments - given);
    HEC_ASSERT(missing <= n);
    select_first(order, n, missing);
    for (size_t i = 0; i < missing; i++)
      counts[order[i].cell]++;
  }
}
