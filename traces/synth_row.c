/* Rows of counts. A row is multinomial with a cap: the top-k experts of a token differ. So no expert gets more than
 * `tokens`; what a full expert cannot take is drawn again among the others. The sum is exact. */
#include "traces/synth_state.h"

#include <gsl/gsl_randist.h>
#include <string.h>

/* Conditional binomials: the e-th count is binomial(draws left, w_e / weight left). The last expert with weight takes
 * what is left, so rounding of the weights cannot lose a draw. O(n). */
void hec_synth_multinomial(gsl_rng *rng, int32_t n, const double *weights, uint64_t draws, uint32_t *counts) {
  double left = 0;
  int32_t last = -1;
  for (int32_t e = 0; e < n; e++) {
    left += weights[e];
    last = weights[e] > 0 ? e : last;
  }
  HEC_ASSERT(last >= 0 || draws == 0);
  for (int32_t e = 0; e < n; e++) {
    counts[e] = 0;
    if (e == last)
      counts[e] = (uint32_t)draws;
    else if (weights[e] > 0 && draws > 0 && left > 0)
      counts[e] = gsl_ran_binomial(rng, weights[e] < left ? weights[e] / left : 1, (unsigned)draws);
    draws -= counts[e];
    left -= weights[e];
    if (e == last)
      break;
  }
  for (int32_t e = last + 1; e < n; e++)
    counts[e] = 0;
}

/* Cuts experts to the cap and returns what was cut; full experts lose their weight in synth->room. */
static uint64_t cut_to_cap(hec_synth *synth, uint32_t cap, uint32_t *row) {
  uint64_t excess = 0;
  double room = 0;
  int32_t n = synth->options.n_experts;
  for (int32_t e = 0; e < n; e++) {
    if (row[e] >= cap) {
      excess += row[e] - cap;
      row[e] = cap;
      synth->room[e] = 0;
    }
    room += synth->room[e];
  }
  if (excess > 0 && !(room > 0)) /* only experts without weight have room left */
    for (int32_t e = 0; e < n; e++)
      synth->room[e] = row[e] < cap ? 1 : 0;
  return excess;
}

void hec_synth_row(hec_synth *synth, uint32_t tokens, uint32_t *row) {
  int32_t n = synth->options.n_experts;
  memcpy(synth->room, synth->weights, (size_t)n * sizeof *synth->room);
  uint64_t draws = (uint64_t)tokens * (uint64_t)synth->options.top_k;
  hec_synth_multinomial(synth->rng, n, synth->room, draws, row);
  int32_t round = 0;
  for (uint64_t excess; (excess = cut_to_cap(synth, tokens, row)) > 0;) {
    HEC_ASSERT(round++ <= n); /* every round fills another expert */
    hec_synth_multinomial(synth->rng, n, synth->room, excess, synth->more);
    for (int32_t e = 0; e < n; e++)
      row[e] += synth->more[e];
  }
}

/* Equal shares over the experts with weight, remainders one each beginning at the turn-th of them. */
void hec_synth_even_row(hec_synth *synth, uint64_t turn, uint32_t tokens, uint32_t *row) {
  int32_t n = synth->options.n_experts;
  uint64_t n_open = 0, place = 0, total = (uint64_t)tokens * (uint64_t)synth->options.top_k;
  for (int32_t e = 0; e < n; e++)
    n_open += synth->weights[e] > 0;
  for (int32_t e = 0; e < n; e++) {
    row[e] = 0;
    if (!(synth->weights[e] > 0))
      continue;
    uint64_t turned = (place + n_open - turn % n_open) % n_open;
    row[e] = (uint32_t)(total / n_open + (turned < total % n_open));
    place++;
  }
}
