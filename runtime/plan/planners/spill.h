/* Spilling: what those planners share that see a micro-batch's loads before they move tokens (LLEP, MoonEP, UltraEP,
 * ECHO, HarMoEny). Tokens of full ranks go to guest copies on others. A planner sees one domain: ranks that help each
 * other, with the experts at home there and their tokens. It answers with moves; here moves become guests and quotas.
 *
 * The domain is all ranks, or there is one for each node. Within a domain ranks count from 0. */
#pragma once
#include "runtime/plan/policy.h"

/* `tokens` assignments of the expert leave its home for `rank` (of the problem's). */
typedef struct {
  int32_t expert, rank;
  uint64_t tokens;
} hec_spill_move;

/* Which sources' assignments go to which host (the home or a guest) of an expert. */
typedef enum {
  HEC_SPLIT_IN_ORDER,     /* consecutive ranges of the sources' assignments: the home's, then each move's */
  HEC_SPLIT_BY_RANK,      /* the same, hosts by ascending rank */
  HEC_SPLIT_PROPORTIONAL, /* of each source in proportion to what hosts have left, largest remainders */
  HEC_SPLIT_OWN_FIRST,    /* a source that is a host serves itself first; the rest in proportion */
  HEC_SPLIT_NEAREST,      /* own rank, then own node, then anywhere, by rank */
  HEC_SPLIT_LARGEST_FIRST /* each move takes from the source with the most left; the home keeps the rest */
} hec_spill_split;

/* The published numbers; 0 where a planner has no such thing. Tests may set others after init. */
typedef struct {
  hec_spill_split split;
  bool within_node; /* domains are nodes */
  double threshold; /* acts, or aims, above this multiple of the mean */
  double capacity;  /* what a rank may take, as a multiple of the mean (UltraEP: of its first tries) */
  int32_t tries;    /* UltraEP's first ones */
  uint64_t min;     /* tokens that are worth a guest */
  int32_t slots;    /* guests of a rank and layer; at most the experts */
} hec_spill_options;

/* The state of such a policy's run. */
typedef struct hec_spill hec_spill;
struct hec_spill {
  hec_spill_options options;
  void (*plan)(hec_spill *spill); /* the planner: writes moves for the domain */
  const hec_problem *problem;
  /* The domain. */
  int32_t n_ranks, n_experts; /* n_experts: all of the layer */
  int32_t first;              /* rank 0 of the domain, of the problem's */
  const int32_t *home_at;     /* [n_ranks + 1] experts home_at[r] .. home_at[r + 1] - 1 are at home on rank r */
  uint64_t *load;             /* [n_ranks] assignments of the experts at home there */
  uint64_t all;               /* their sum */
  uint64_t *total;            /* [n_experts] assignments from all sources */
  const int32_t *home;        /* [n_experts] of the problem's ranks */
  /* The answer. */
  hec_spill_move *moves; /* of all domains, each expert's behind each other */
  int32_t n_moves, move_capacity;
  uint64_t units; /* inner steps */
  /* Scratch for planners. */
  double *key;         /* [max(n_experts, n_ranks)] */
  int32_t *order;      /* [n_experts] */
  int32_t *rank_order; /* [n_ranks] */
  int32_t *used;       /* [n_ranks] */
  int64_t *a, *b;      /* [n_ranks] */
  int64_t *left;       /* [n_experts] */
  void *own;           /* the planner's, set after init */
  /* Own scratch. */
  int32_t *all_home_at;       /* [ep + 1] */
  int32_t *move_at, *move_of; /* [n_experts + 1], [move_capacity] CSR of moves by expert */
  int32_t n_hosts;            /* hosts of one expert */
  int32_t *host, *by_rank;    /* [ep] its rank; hosts by ascending rank */
  uint64_t *host_left;        /* [ep] */
  int64_t *rest;              /* [ep] remainders */
  uint32_t *count;            /* [ep] assignments by source */
  uint32_t *part;             /* [ep * n_hosts] of source s on host h */
};

static inline int32_t hec_spill_home(const hec_spill *spill, int32_t expert) {
  return spill->home[expert] - spill->first;
}
/* Adds a move to `rank` of the domain, or to the expert's move there that stands among its last ones. */
void hec_spill_add(hec_spill *spill, int32_t expert, int32_t rank, uint64_t tokens);
/* The expert, whose moves are the last ones, has one to `rank` of the domain. */
bool hec_spill_moved(const hec_spill *spill, int32_t expert, int32_t rank);

/* Contiguous homes, no copies, quotas with room for whatever the options allow. */
void hec_spill_init(hec_policy_run *run, void (*plan)(hec_spill *spill), hec_spill_options options);
void hec_spill_decide(hec_policy_run *run); /* no guests: nothing is known before the gate */
void hec_spill_refine(hec_policy_run *run, int32_t layer, const hec_load *load);
/* What the rows have in common. */
#define HEC_SPILL_POLICY                                                                                               \
  .known = HEC_KNOWN_EXACT, .schedule = "serial", .dispatch = &hec_dispatch_quota, .window = 1, .rearranges = true,    \
  .init = init, .decide = hec_spill_decide, .refine = hec_spill_refine

/* The option `guests`, own[i] of a policy, and what it comes to: if it is not given, problem.slots less the homes. */
#define HEC_SPILL_GUESTS(i, who)                                                                                       \
  HEC_POLICY_WHOLE("guests", i, 0, 65536, .help = "guest slots of a rank; else what `slots` leaves", .source = who)
int32_t hec_spill_slots(const hec_policy_run *run, int32_t i);
