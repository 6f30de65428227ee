/* Tutel's choice of a degree and an all-to-all while training (arXiv:2206.03382; reference policies.md 3.5), which
 * the two schedules of that name share:
 *
 *   key = floor(capacity / window)          capacity: max tokens that one source has for one expert
 *
 * A new key tries r = 1, 2, 4, 8, each with the linear all-to-all and, where that is another one, with 2DH
 * (token_route.h). It tries one each time it is met. After that the best stays, the earlier of equals.
 *
 * What a trial is worth. Published: its measured time. Here the trial runs too, with its degree and its all-to-all.
 * But it is priced by the law of degree.h on the chunks that it had. So a simulation, an execution and all ranks
 * decide alike:
 *
 *   t = max(2 A, 2 A / r + X),   A: sum over chunks of the exchange's closed form, of 2DH both and the busiest relay's
 *                                   alignment between them;   X: sum of the busiest rank's experts
 *
 * forward and backward added. Every trial has the load of its own micro-batch, as published. So where loads change from
 * one to the next, luck decides between candidates that are nearly alike. This is strongest while a policy still learns
 * the loads.
 *
 * What 2DH gains is what the cluster says of small messages (efficiency_by_bytes, models/cluster.h). The laws count the
 * latency of an exchange once, however many messages it has. The paper's estimate counts it once for each. On a cluster
 * that says nothing of them 2DH gains nothing on equal loads.
 *
 * That the capacity is a source's, the length of its buffer for an expert, is inferred. So are the window of 128 tokens, the
 * tile of a GEMM, and the order of trials. Of 2DH: what is charged for copies (relays.c), and what a partly used node does
 * (token_route_2dh.c). Left out: the paper's switch between data and expert parallelism. */
#pragma once
#include "runtime/program/chunked.h"

typedef struct hec_tutel hec_tutel;
/* One table per layer; the first member of whoever extends it. */
hec_tutel *hec_tutel_new(const hec_problem *problem, hec_arena *arena);
/* The layer's forward from its gate on: chooses, lowers, prices. O(transfers + work) beside lowering. */
void hec_tutel_from_gate(hec_lowering *low, hec_tutel *tutel, int32_t layer);
