/* The table of replays. A row's text is a list of settings. A setting with several values takes them in turn, case by case:
 * "ranks=2,3 exact" is two ranks, then three, then two, all in exact mode. A setting without a value is 1.
 *
 *   problem   ranks exact forward steps mbs top-k layers d-model esp mp machine load copies   (hec_replay_wish, loads, below)
 *   policy    NAME, next (of the table, case by case), all (default)      policies  NAME+NAME: all cases with each of them
 *   schedule  NAME, published (each policy's own), chunked (each that is); default: a third of the policies, each under
 *             another
 *   run       transport threads virtual collective limit unchecked        device staged probe: on queued_cpu.h
 *   counts    NAME+NAME: what must have come up in the row's programs (see count); for ranks that are threads
 *   every     all cases always, not a share of them (hec_test_cases): where something must come up */
#include "tests/exec/replay_rows.h"
#include "tests/exec/replay_case.h"
#include "tests/support/checks.h"
#include "tests/support/random_problem.h"

#include <string.h>

typedef struct {
  const char *group, *name;
  uint64_t seed; /* of the first case; the next one's is one more */
  int32_t n;     /* cases */
  const char *text;
} row;

/* Links so slow, and nothing else that takes time, that most layers choose rows once per node. */
#define FREE_2X4 "machine=free-2x4,free-4x2,free-3x3,free-8x1"
/* Whole nodes and partly used ones; with eight micro-batches Tutel tries 2DH with every degree, forward and backward. */
#define RELAYED "machine=3x3,2x2,2x4,slow-2x4,3x2,4x2,2x3 ranks=8,4,8,6,6,7,4 mbs=8 schedule=tutel "
#define EIGHT_POLICIES "ep+hecate+eplb+fastermoe+llep+laer+ultraep+flexmoe"
/* The second has no adding receive: what is summed goes through staging. */
#define LINKS "transport=emulated,paced "

static const row rows[] = {
    {"plain", "random", 31, 40, ""},
    {"plain", "exact", 5031, 24, "exact"},
    {"plain", "ranks", 77, 10, "every ranks=1,2,3,4,8 exact=0,1 steps=3 mbs=2"},
    {"plain", "top-k", 177, 8, "every ranks=3 steps=2 mbs=3 top-k=1,2,3,4,5,6,7,8 threads"},
    {"plain", "forward", 277, 8, "forward threads=0,1"},
    {"plain", "collectives", 377, 6, "ranks=4,6,8 exact=0,1 collective=each"},
    {"plain", "transports", 477, 16, LINKS "ranks=2,3,4 exact=0,0,1,1 steps=2 threads=1,0,0"},
    {"plain", "timelines", 577, 8,
     "every ranks=1,2,3,4 steps=2 threads transport=emulated,shm virtual=0,0,0,0,1,1,1,1 counts=seen"},
    /* Lanes really overlap: with links that take far longer than attention, the attention that a gather is scheduled
     * beside begins before the gather ends. */
    {"plain", "lanes overlap", 777, 1,
     "ranks=2 steps=2 mbs=1 top-k=1 machine=late transport=emulated threads copies policy=hecate-nosharding "
     "schedule=published counts=beside"},
    /* Under laer a gather lies beside the experts of the layer before, and the return of its gradients beside their
     * backward. In real time these few rows can be done before the return is posted. */
    {"plain", "experts overlap", 778, 1,
     "ranks=2 steps=2 mbs=1 top-k=2 layers=3 machine=late transport=emulated threads virtual policy=laer "
     "schedule=published counts=ahead+behind"},
    /* A link whose law takes longer than the longest wait for a peer: nobody is late, for nobody is waited for. */
    {"plain", "law beyond the limit", 877, 1,
     "ranks=2 steps=1 mbs=1 top-k=1 layers=1 forward load=none machine=2.5s transport=emulated policy=ep "
     "schedule=published limit=2"},
    /* A buffer that takes the place of very many small ones, each free after another operation. */
    {"plain", "more fragments than operations", 977, 1,
     "ranks=8 steps=1 mbs=2 top-k=8 layers=48 load=meet unchecked threads policy=ep schedule=published"},

    /* Schedules that cut a layer's tokens into chunks. With four micro-batches Tutel tries every degree, 8 the last. With
     * the few tokens of these cases many chunks are then empty on some rank, or on all. */
    {"chunked", "random", 8031, 32, "mbs=4 schedule=chunked policy=next"},
    {"chunked", "exact", 8531, 24, "exact mbs=4 schedule=chunked policy=next"},
    {"chunked", "ranks", 8777, 10,
     "every ranks=1,2,3,5,8 exact=0,1 steps=5 mbs=2 threads=1,0,0 schedule=chunked policy=next"},
    {"chunked", "forward", 8877, 8, "forward mbs=4 schedule=chunked policy=next"},
    {"chunked", "transports", 8977, 8, LINKS "ranks=2,3,4 exact=0,0,1,1 steps=2 mbs=4 schedule=chunked policy=next"},
    {"chunked", "devices", 9077, 16,
     "device staged=0,1 exact=1,0,0 forward=0,0,0,0,0,0,1 steps=2 mbs=4 schedule=chunked policy=next"},
    {"chunked", "timelines", 9177, 6,
     "every ranks=3,4,5 steps=3 threads virtual=0,0,0,1,1,1 schedule=chunked policy=next counts=cut"},
    {"chunked", "hardly any tokens", 9277, 1,
     "ranks=4 steps=1 mbs=4 top-k=1 load=few threads schedule=chunked "
     "policies=ep+fastermoe+smartmoe+eplb+hecate+harmoeny+ultraep+laer counts=apart"},
    /* Blocks of more than 30 MB: their gradients are reduced in pieces. */
    {"chunked", "gradients in pieces", 9377, 2,
     "every ranks=2 steps=1 mbs=1,2 top-k=1 layers=2 d-model=1400 threads device=0,1 staged schedule=lina policy=ep "
     "counts=pieces"},

    /* Rows that travel once per node. */
    {"routes", "by node, random", 3031, 48,
     FREE_2X4 " ranks=2,3,4,5,6,7,8 top-k=2,3,4,5,6 schedule=hiermoe policy=next"},
    {"routes", "by node, exact", 3531, 32,
     FREE_2X4 " ranks=3,4,5,6,7,8 exact mbs=1,2,3 threads=0,1 schedule=hiermoe policy=next"},
    {"routes", "by node, forward", 3877, 8, FREE_2X4 " ranks=8 forward top-k=4 schedule=hiermoe policy=next"},
    {"routes", "by node, transports", 3977, 8,
     LINKS "machine=free-4x2,free-3x3,free-8x1 ranks=3,4,5 exact=0,0,1,1 steps=2 top-k=3 schedule=hiermoe policy=next"},
    {"routes", "by node, devices", 4077, 24,
     FREE_2X4 " device staged=0,1 ranks=4,5,6,7,8 exact=1,0,0 steps=2 forward=0,0,0,0,0,0,1 top-k=2,3,4,5 "
              "schedule=hiermoe policy=next"},
    {"routes", "by node, timelines", 4177, 8,
     "every " FREE_2X4 " ranks=8 steps=3 top-k=4 threads virtual=0,0,0,0,1,1,1,1 schedule=hiermoe policy=ep "
     "counts=mostly-by-node+weighted"},
    /* Rows over relays. */
    {"routes", "relays, random", 12031, 7, RELAYED "steps=1 threads policies=" EIGHT_POLICIES " counts=aligned"},
    {"routes", "relays, exact", 12531, 7, RELAYED "exact threads=0,1,1 policies=" EIGHT_POLICIES " counts=aligned"},
    {"routes", "relays, improved", 12877, 12,
     RELAYED "steps=1 forward=0,1 threads schedule=tutel-improved policy=ep,hecate,eplb,fastermoe,llep,laer"},
    {"routes", "relays, transports", 12977, 12,
     RELAYED LINKS "exact=0,0,1,1 steps=1 policy=ep,fastermoe,ultraep,hecate,llep,flexmoe,eplb,laer"},
    {"routes", "relays, devices", 13077, 4,
     RELAYED "device staged=0,0,0,1 exact=0,1 steps=1 forward=0,0,1,0 policies=" EIGHT_POLICIES " counts=aligned"},
    {"routes", "relays, virtual time", 13177, 6,
     RELAYED "steps=1 threads virtual policy=ep,hecate,eplb,fastermoe,llep,laer"},

    /* Experts in shards. */
    {"groups", "shards, random", 11031, 32, "esp=2,2,4 threads=1,0,0,0"},
    {"groups", "shards, exact", 11531, 32, "esp=2,2,4 exact threads=1,0,0,0"},
    {"groups", "shards, chunked", 12031, 16, "esp=2,2,4 mbs=4 exact=0,1,0 forward=0,0,0,0,1 schedule=chunked"},
    {"groups", "shards, forward", 12277, 8, "esp=2,2,4 forward"},
    {"groups", "shards, transports", 12477, 8,
     LINKS "ranks=4 esp=2,2,4 exact=0,0,1,1 steps=2 schedule=chunked,turn,turn"},
    {"groups", "shards, devices", 12577, 16,
     "device staged=0,1 esp=2,2,4 exact=0,0,0,1 steps=2 mbs=2 forward=0,0,0,0,0,0,1 schedule=chunked,turn,turn,turn"},
    /* Tensor parallelism; then FSMoE's groups: the same ranks share the dense part and the experts. */
    {"groups", "tensor, random", 21031, 20, "mp=2,2,4 threads=1,0,0,0"},
    {"groups", "tensor, exact", 21531, 20, "mp=2,2,4 exact threads=1,0,0,0"},
    {"groups", "tensor, chunked", 22031, 8, "mp=2,2,4 mbs=2 exact=0,1,0 forward=0,0,0,0,1 schedule=chunked policy=ep"},
    {"groups", "tensor and shards", 22231, 16, "mp=2,2,4 esp=2,2,4 exact=0,1,0 schedule=turn,fsmoe"},
    {"groups", "tensor, forward", 22277, 8, "mp=2,2,4 forward"},
    {"groups", "tensor, transports", 22477, 8, LINKS "ranks=4 mp=2,2,4 exact=0,0,1,1 steps=2 policy=hecate,ep,ep"},
    {"groups", "tensor, devices", 22577, 8,
     "device staged=0,1 mp=2,2,4 exact=0,0,0,1 steps=2 mbs=2 forward=0,0,0,0,0,0,1 policy=all,ep"},

    /* Devices carry out what they are given as late as they may and in a random order. A stream that should wait for
     * another one and does not gives wrong numbers (test_replay_faults.c leaves waits out). */
    {"device", "random", 6031, 8, "device"},
    {"device", "exact", 7031, 6, "device exact"},
    {"device", "forward", 7277, 4, "device forward"},
    {"device", "ranks", 7377, 4, "every device ranks=1,2,4,8 steps=3 mbs=2"},
    {"device", "collectives", 7477, 3, "device ranks=4,6,8 layers=1 steps=1 exact=0,1 collective=each"},
    /* As over NCCL: what is to be added comes to stand beside first. */
    {"device", "staged", 7527, 4, "device staged ranks=2,3,4,5,6,7 layers=2 steps=1 mbs=2"},
    {"device", "timelines", 7577, 8, "every device ranks=1,2,3,4 steps=2 virtual=0,0,0,0,1,1,1,1 probe counts=seen"},
};

#define FREE " flops=100T mem=40G a=0s c=0s launch=0s"
static const struct {
  const char *name, *line;
} machines[] = {
    {"free-2x4", "2x4 nvlink=300G@0s nic=1M@0s" FREE},
    {"free-4x2", "4x2 nvlink=300G@0s nic=1M@0s" FREE},
    {"free-3x3", "3x3 nvlink=300G@0s nic=1M@0s" FREE},
    {"free-8x1", "8x1 nvlink=300G@0s nic=1M@0s" FREE},
    {"3x3", "3x3 nvlink=100G@1us nic=12G@5us flops=100T mem=32G"}, /* relays of two sources for two destinations */
    {"2x2", "2x2 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"},
    {"2x4", "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"},
    {"slow-2x4", "2x4 nvlink=10G@2us nic=1G@5us flops=100T mem=40G"},
    {"3x2", "3x2 nvlink=100G@1us nic=12G@5us flops=100T mem=32G"},
    {"4x2", "4x2 nvlink=100G@1us nic=12G@5us flops=100T mem=32G"},
    {"2x3", "2x3 nvlink=100G@1us nic=12G@5us flops=100T mem=32G"},
    {"late", "2x1 nvlink=1M@1ms nic=1M@50ms flops=1G mem=1G"},
    {"2.5s", "2x1 nvlink=1G@1us nic=1G@2500ms flops=1G mem=1G"},
};

/* ---- A row's text ---- */

enum { WORD = 256 };

typedef struct {
  hec_replay_wish wish;
  hec_replay_launch launch;
  int32_t device, virtual_time, probe, unchecked, copies, limit_s, every;
  char machine[WORD], load[WORD], policy[WORD], policies[WORD], schedule[WORD], transport[WORD], collective[WORD],
      counts[WORD];
} setting;

#define AT(field) offsetof(setting, field)
static const struct {
  const char *key;
  size_t at;
} numbers[] = {{"ranks", AT(wish.ranks)},    {"exact", AT(wish.exact)},       {"forward", AT(wish.forward)},
               {"steps", AT(wish.steps)},    {"mbs", AT(wish.micro_batches)}, {"top-k", AT(wish.top_k)},
               {"layers", AT(wish.layers)},  {"d-model", AT(wish.d_model)},   {"esp", AT(wish.esp)},
               {"mp", AT(wish.mp)},          {"threads", AT(launch.threads)}, {"staged", AT(launch.staged)},
               {"device", AT(device)},       {"virtual", AT(virtual_time)},   {"probe", AT(probe)},
               {"unchecked", AT(unchecked)}, {"copies", AT(copies)},          {"limit", AT(limit_s)},
               {"every", AT(every)}},
  words[] = {{"machine", AT(machine)},       {"load", AT(load)},         {"policy", AT(policy)},
             {"policies", AT(policies)},     {"schedule", AT(schedule)}, {"transport", AT(transport)},
             {"collective", AT(collective)}, {"counts", AT(counts)}};

static void set(setting *s, const char *key, const char *value) {
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (strcmp(numbers[i].key, key) == 0) {
      *(int32_t *)(void *)((char *)s + numbers[i].at) = (int32_t)strtol(value, NULL, 10);
      return;
    }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i].key, key) == 0) {
      (void)snprintf((char *)s + words[i].at, WORD, "%s", value);
      return;
    }
  ck_abort_msg("no setting of rows: %s", key);
}

/* The i-th of "a,b,c", going round; cuts the list. */
static const char *value_of(char *list, int32_t i) {
  int32_t n = 1;
  for (const char *at = list; *at; at++)
    n += *at == ',';
  for (i %= n; i > 0; i--)
    list = strchr(list, ',') + 1;
  list[strcspn(list, ",")] = '\0';
  return list;
}

static setting setting_of(const row *r, int32_t i) {
  setting s = {0};
  char text[1024], one[] = "1", *rest = text;
  ck_assert((size_t)snprintf(text, sizeof text, "%s", r->text) < sizeof text);
  for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
    char *values = strchr(word, '=');
    if (values)
      *values++ = '\0';
    set(&s, word, value_of(values ? values : one, i));
  }
  return s;
}

/* Whether "a+b+c" has the name. */
static bool lists(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
    if ((at == list || at[-1] == '+') && (at[n] == '+' || at[n] == '\0'))
      return true;
  return false;
}

/* ---- What must have come up ---- */

enum { SEEN, CUT, APART, PIECES, MOSTLY_BY_NODE, WEIGHTED, ALIGNED, BESIDE, AHEAD, BEHIND, N_COUNTS };
static const char *const count_names[N_COUNTS] = {
    "seen",           /* iterations */
    "cut",            /* experts in chunks */
    "apart",          /* ranks without a part in a chunk */
    "pieces",         /* of dense gradients, but the first */
    "mostly-by-node", /* layers whose rows travel once per node, less the others */
    "weighted",       /* ... that travel back */
    "aligned",        /* alignments of rows that have a relay */
    "beside",         /* attention that begins before the gather of its layer ends */
    "ahead",          /* gathers beside the experts of the layer before */
    "behind",         /* returns of gradients beside those experts' backward */
};
static int64_t counts[N_COUNTS];
static bool wanted[N_COUNTS];

static void count_op(const hec_program *program, const hec_op *op) {
  counts[CUT] += op->degree > 1 && op->role == HEC_ROLE_EXPERTS;
  counts[PIECES] += op->allreduce.first_byte > 0 && op->role == HEC_ROLE_DENSE_REDUCE;
  counts[MOSTLY_BY_NODE] += op->role != HEC_ROLE_PERMUTE ? 0 : op->by_node ? 1 : -1;
  counts[WEIGHTED] += op->role == HEC_ROLE_NODE_DISPATCH && op->backward;
  counts[ALIGNED] += op->role == HEC_ROLE_ALIGN && op->local.bytes_at >= 0;
  for (int32_t r = 0; op->degree > 1 && r < program->n_ranks; r++)
    counts[APART] += !hec_program_takes_part(program, op, r);
}

/* A moved operation and one that computes, beside each other on some rank. */
static void count_pair(const hec_program *program, const hec_timeline *t, size_t g, size_t x) {
  const hec_op *moved = &program->ops[g], *computed = &program->ops[x];
  bool gathers = moved->role == HEC_ROLE_GATHER, returns = moved->role == HEC_ROLE_SCATTER, overlap = false;
  size_t n = (size_t)program->n_ranks;
  if (moved->kind != HEC_OP_EXCHANGE || (!gathers && !returns))
    return;
  if (gathers && x > g && computed->role == HEC_ROLE_ATTENTION && !computed->backward &&
      computed->layer == moved->layer)
    counts[BESIDE] += t->begin_ps[x * n] < t->end_ps[g * n];
  if (computed->role != HEC_ROLE_EXPERTS || computed->backward != returns || moved->layer != computed->layer + 1)
    return;
  for (size_t r = 0; r < n; r++)
    overlap =
        overlap || (t->begin_ps[g * n + r] < t->end_ps[x * n + r] && t->end_ps[g * n + r] > t->begin_ps[x * n + r]);
  counts[returns ? BEHIND : AHEAD] += overlap;
}

/* Every timeline is verified against its program. */
static void count(void *context, const hec_replayed *iteration) {
  const hec_program *program = hec_lowering_program(iteration->low);
  const setting *s = context;
  hec_program_check(program);
  hec_timeline_check(iteration->timeline, program);
  ck_assert_int_gt(hec_timeline_end_ps(iteration->timeline), 0);
  ck_assert(iteration->interrupted >= 0 && iteration->interrupted <= 1);
  ck_assert(!s->device || (iteration->interrupted < 1 && iteration->probe_s == NULL)); /* asked for, not there */
  counts[SEEN]++;
  for (size_t i = 0; i < program->n_ops; i++)
    count_op(program, &program->ops[i]);
  for (size_t i = 0; (wanted[BESIDE] || wanted[AHEAD]) && i < program->n_ops * program->n_ops; i++)
    count_pair(program, iteration->timeline, i / program->n_ops, i % program->n_ops);
}

/* ---- Cases ---- */

/* none: no token; few: three tokens on three of four ranks; meet: first one token each, then all tokens of all ranks on one
 * expert. */
static void give_load(const hec_replay_case *c, const char *kind) {
  const hec_problem *p = &c->problem;
  for (int32_t mb = 0; kind[0] && mb < c->replay.n_micro_batches; mb++)
    for (int32_t l = 0; l < p->n_layers; l++)
      for (int32_t s = 0; s < p->n_ranks; s++) {
        uint32_t *counts_of = hec_load_row(&c->replay.steps[0].loads[mb], l, s);
        memset(counts_of, 0, (size_t)p->n_experts * sizeof *counts_of);
        if (strcmp(kind, "few") == 0)
          counts_of[(4 * l + mb) % p->n_experts] = s < 3;
        else if (strcmp(kind, "meet") == 0)
          counts_of[mb == 0 ? l % p->n_experts : 0] = mb == 0 ? 1 : (uint32_t)(p->tokens * p->top_k);
      }
}

static const char *machine_of(const char *name) {
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
    if (strcmp(machines[i].name, name) == 0)
      return machines[i].line;
  ck_assert_msg(!name[0], "no machine of rows: %s", name);
  return NULL;
}

static const char *next_policy(uint64_t i) {
  uint64_t n = 0;
  while (hec_policies[n])
    n++;
  return hec_policies[i % n]->name;
}

static void set_launch(setting *s, const row *r, int32_t i) {
  hec_replay_launch *l = &s->launch;
  bool turns = !s->schedule[0] || strcmp(s->schedule, "turn") == 0;
  l->turn = turns ? 1 + i : 0;
  l->chunked = strcmp(s->schedule, "chunked") == 0;
  l->schedule = turns || l->chunked || strcmp(s->schedule, "published") == 0 ? NULL : s->schedule;
  l->policy = s->policy[0] && strcmp(s->policy, "all") != 0 ? s->policy : NULL;
  if (l->policy && strcmp(l->policy, "next") == 0)
    l->policy = next_policy(r->seed + (uint64_t)i);
  l->transport = s->transport[0] ? hec_transport_find(s->transport) : NULL;
  ck_assert_msg(l->transport || !s->transport[0], "no transport: %s", s->transport);
  ck_assert_msg(!l->policy || hec_policy_find(l->policy), "no policy: %s", l->policy);
  l->limit_s = s->limit_s;
}

/* `policy`: instead of the row's; the k-th of them. */
static void run_case(const row *r, int32_t i, const char *policy, int32_t k) {
  setting s = setting_of(r, i);
  uint64_t seed = r->seed + (uint64_t)(k * r->n + i);
  set_launch(&s, r, i);
  s.launch.policy = policy ? policy : s.launch.policy;
  s.wish.machine = machine_of(s.machine);
  HEC_SCOPED(hec_arena) arena = {0};
  hec_replay_case *c = hec_replay_random(&arena, &seed, s.wish);
  give_load(c, s.load);
  s.launch.device_seed = s.device ? seed : 0;
  if (s.copies)
    c->problem.t = c->problem.m = c->problem.n_experts;
  c->replay.virtual_time = s.virtual_time;
  c->replay.probe = s.probe;
  c->replay.check = !s.unchecked;
  c->replay.measured = s.launch.threads || s.device ? count : NULL;
  c->replay.context = &s;
  bool each = strcmp(s.collective, "each") == 0;
  for (int32_t w = 0; each ? hec_collectives[w] != NULL : w == 0; w++) {
    c->replay.collective = each ? hec_collectives[w] : NULL;
    s.launch.turn += w > 0;
    if (hec_replay_all(c, s.launch) != HEC_OK)
      ck_abort_msg("%s: %s, case %d: %s\n%s", r->group, r->name, i, hec_last_error(), c->line);
  }
}

/* What must have come up has, unless these are further problems (HECATE_TEST_CASES), which need not each have it. */
static void run_cases(const row *r, int32_t n, const char *policy, int32_t k, bool demands) {
  setting s = setting_of(r, 0);
  for (int32_t j = 0; j < N_COUNTS; j++) {
    wanted[j] = lists(s.counts, count_names[j]);
    counts[j] = 0;
  }
  for (int32_t i = 0; i < n; i++)
    run_case(r, i, policy, k);
  for (int32_t j = 0; j < N_COUNTS && demands; j++)
    ck_assert_msg(!wanted[j] || counts[j] > 0, "%s: %s: %s %s", r->group, r->name, policy ? policy : "nothing is",
                  count_names[j]);
}

/* The group's row number i; NULL after the last. */
static const row *row_of(const char *group, int32_t i) {
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
    if (strcmp(rows[k].group, group) == 0 && i-- == 0)
      return &rows[k];
  return NULL;
}

int hec_replay_rows(const char *group) {
  int n = 0;
  while (row_of(group, n))
    n++;
  HEC_ASSERT(n > 0);
  return n;
}

void hec_replay_row(const char *group, int i) {
  enum { POLICIES_MAX = 16 };
  const row *r = row_of(group, i);
  setting s = setting_of(r, 0);
  char *rest = s.policies, *policies[POLICIES_MAX + 1];
  int32_t n = 0;
  while (n < POLICIES_MAX && (policies[n] = strtok_r(rest, "+", &rest)) != NULL)
    n++;
  for (int32_t k = 0; n > 0 && k < hec_test_cases(n); k++)
    run_cases(r, r->n, policies[k % n], k, k < n);
  if (n == 0)
    run_cases(r, s.every ? r->n : hec_test_cases(r->n), NULL, 0, true);
}
