/* Failures of a launch: the first one is everybody's.
 *
 *     claimed: 0 -> who + 1      one compare-and-swap decides who writes the text
 *     told:    0 -> 1            the text is there; every rank is rung and its waits end
 *
 * A rank that is killed between the two leaves a claim without a text. The supervisor, who knows that it is dead,
 * takes the claim over. Messages read "rank 2, in PLACE: what happened". */
#include "runtime/exec/launch/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void describe_operation(const hec_place *place, hec_text *out) {
  hec_text_add(out, place->role < HEC_N_ROLES ? hec_role_name[place->role] : "an operation");
  if (place->layer >= 0)
    hec_text_printf(out, " of layer %d", place->layer);
  hec_text_printf(out, " (%soperation %d, micro-batch %d, iteration %lld)", place->backward ? "backward, " : "",
                  place->op, place->micro_batch, (long long)place->iteration);
}

void hec_place_describe(const hec_place *place, hec_text *out) {
  if (place->role >= 0)
    describe_operation(place, out);
  else
    hec_text_add(out, place->phase[0] ? place->phase : "no operation");
}

bool hec_world_failed(const hec_world *world) {
  return atomic_load_explicit(&world->failure->told, memory_order_acquire) != 0;
}

static bool claim(hec_failure *failure, int32_t who, int32_t dead) {
  int32_t none = 0, left = dead + 1;
  if (atomic_compare_exchange_strong(&failure->claimed, &none, who + 1))
    return true;
  return dead >= 0 && !atomic_load(&failure->told) && atomic_compare_exchange_strong(&failure->claimed, &left, who + 1);
}

void hec_world_fail(hec_world *world, int32_t who, int32_t dead, hec_status code, const char *text) {
  hec_failure *failure = world->failure;
  if (!claim(failure, who, dead))
    return;
  failure->code = code;
  (void)snprintf(failure->text, sizeof failure->text, "%s", text);
  atomic_store_explicit(&failure->told, 1, memory_order_release);
  for (int32_t r = 0; r < world->n_ranks; r++)
    hec_world_ring(world, r);
}

hec_status hec_rank_check(hec_rank *rank) {
  if (!hec_world_failed(rank->world))
    return HEC_OK;
  return hec_fail(HEC_FAILED, "%s", rank->world->failure->text);
}

/* "rank 2, in PLACE: TEXT" */
static void say(const hec_world *world, int32_t rank, const char *text, hec_text *out) {
  hec_place place;
  hec_text_printf(out, "rank %d", world->base + rank);
  if (hec_world_place(world, rank, &place)) {
    hec_text_add(out, ", in ");
    hec_place_describe(&place, out);
  }
  hec_text_printf(out, ": %s", text);
}

hec_status hec_rank_report(hec_rank *rank, hec_status code, const char *text) {
  HEC_SCOPED(hec_text) said = {0};
  say(rank->world, rank->rank, text, &said);
  hec_world_fail(rank->world, rank->world->base + rank->rank, -1, code, said.data);
  HEC_TRY(hec_rank_check(rank));
  HEC_TRY(hec_fail(HEC_FAILED, "%s", said.data)); /* another rank is just writing its own */
  return HEC_OK;
}

hec_status hec_rank_fail(hec_rank *rank, const char *format, ...) {
  char text[HEC_FAILURE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return hec_rank_report(rank, HEC_FAILED, text);
}

/* ---- Waits that took too long ---- */

void hec_rank_waits_for(hec_rank *rank, int32_t peer) {
  int32_t number = peer < 0 ? -1 : rank->world->base + peer;
  atomic_store_explicit(&rank->world->slots[rank->rank].waits_for, number, memory_order_relaxed);
}

/* Whom the others wait for in the end: from `peer` on along "waits for", as long as each is seen waiting. A stopped rank
 * was perhaps in a wait too, but has not been awake for long. A circle: `peer` itself. Outside a group, perhaps. */
static int32_t culprit(const hec_rank *rank, int32_t peer) {
  int64_t old_ns = hec_clock_ns() - rank->limit_ns / 2;
  int32_t at = peer;
  for (int32_t steps = 0; steps < HEC_RANKS_MAX; steps++) {
    const hec_rank_slot *slot = &rank->world->slots[at];
    int32_t next = atomic_load_explicit(&slot->waits_for, memory_order_relaxed);
    if (next < 0 || atomic_load_explicit(&slot->awake_ns, memory_order_relaxed) < old_ns)
      return at;
    at = next - rank->world->base;
  }
  return peer;
}

hec_status hec_rank_late(hec_rank *rank, int32_t peer, const char *what) {
  if (peer < 0) /* an exchange that is held to the cluster's links, or one that the network still works on */
    return hec_rank_fail(rank, "waited %.3g s in %s: all bytes are there, the links take longer than the longest wait",
                         (double)rank->limit_ns * 1e-9, what);
  hec_place place;
  HEC_SCOPED(hec_text) text = {0};
  HEC_ASSERT(peer >= 0 && peer < rank->n_ranks);
  int32_t missing = culprit(rank, peer);
  hec_text_printf(&text, "waited %.3g s for rank %d in %s", (double)rank->limit_ns * 1e-9, rank->world->base + missing,
                  what);
  if (hec_world_place(rank->world, missing, &place)) {
    hec_text_add(&text, ", which was last in ");
    hec_place_describe(&place, &text);
  }
  return hec_rank_fail(rank, "%s", text.data);
}
