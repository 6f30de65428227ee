/* Top-k of a softmax (Shazeer et al., arXiv:1701.06538, without noise; Switch, arXiv:2101.03961, at k = 1):
 *
 *     p = softmax(h2 Wg)   the k best (ties to the lower expert)   w_e = p_e, not renormalised over the chosen
 *
 *     dp[t, e] = sum of weight_grad over the token's assignments to e (+ balance[e])
 *     dl = p (dp - sum_e p dp)    dWg += h2^T dl    dh2 += dl Wg^T
 *
 * Replay's gate: with routing forced, and on devices too. O(T d E). */
#include "runtime/exec/model/gate.h"

const hec_gate hec_gate_softmax = {
    .name = "softmax",
    .summary = "the k most probable experts of a softmax, weighted with their probabilities",
    .source = "Shazeer et al., arXiv:1701.06538",
    .biased = true,
    .score = hec_gate_softmax_score,
    .choose = hec_gate_choose_top_k,
    .backward = hec_gate_softmax_backward,
};
