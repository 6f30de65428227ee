/* The user's own placement, as it stands: read from a file (placement/placement.h), never changed, so that everything else
 * is compared with what runs today. Copies are resident: in training they pay for memory and gradients.
 *
 * A placement does not say who computes which tokens. Frameworks that load such files differ: vLLM and TensorRT-LLM
 * take the slots of an expert in turn. SGLang prefers its own rank and node where its dispatch is static. Here: evenly
 * over all slots by turns, as for `eplb`, so that two rows differ by their placements alone. Where the problem has no
 * placement the tools refuse the row; it then is contiguous expert parallelism. Nothing is decided: no work units. */
#include "runtime/plan/placement/placement.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <string.h>

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash && slash[1] ? slash + 1 : path;
}

static void init(hec_policy_run *run) {
  const hec_placement *placement = run->problem->placement;
  if (!placement) {
    hec_plan_set_contiguous(&run->plan, run->problem);
    return;
  }
  hec_placement_set(placement, &run->plan);
  char name[101];
  hec_name_copy(name, sizeof name, base_name(placement->origin));
  hec_make_plain(name);
  hec_policy_note(run, "experts stand as in %s (format %s); tokens go evenly over all slots of an expert, by turns",
                  name, placement->format);
  if (placement->moves > 0)
    hec_policy_note(run, "; its framework moves the experts of %d layers in every iteration, here they stay",
                    placement->moves);
}

const hec_policy hec_policy_given = {
    .name = "given",
    .fills = {.any = true},
    .summary = "Experts stand as the file of `placement` says. They never move.",
    .source = "the user's file: EPLB, vllm-ascend or TensorRT-LLM",
    .known = HEC_KNOWN_STATIC,
    .schedule = "serial",
    .dispatch = &hec_dispatch_round_robin,
    .all_ranks = true,
    .window = 1,
    .placed = true,
    .init = init,
};
