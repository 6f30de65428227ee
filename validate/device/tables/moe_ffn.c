/* moe_ffn.csv: one expert layer, forward, on the slowest rank of an expert-parallel group. The loads are not published,
 * only the rule they were drawn from. Every expert's load is from a power law p(x) ~ x^-A between 1 and 0.8 tokens
 * (0.01 and 2 where there are fewer choices than experts). Loads are scaled to tokens * topk and rounded, and the most
 * loaded rank becomes rank 0, which is measured. A token cannot choose an expert twice: what an expert has beyond the
 * number of tokens goes to experts that tie at nothing, and the router takes the lowest index. Those are of rank 0. The
 * time is the mean of five draws. Here the load is the mean over DRAWS draws from a fixed seed, summed up as the law needs
 * it (hec_grouped_load). Source of the rule: aiconfigurator, collector/helper.py (power_law_logits_v3). O(experts * DRAWS)
 * per row, remembered for rows of one routing. */
#include "validate/device/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[] = {"gpu",          "dtype",       "num_tokens", "hidden", "inter",
                                      "topk",         "num_experts", "moe_tp",     "moe_ep", "seconds",
                                      "distribution", "kernel",      "framework",  "flag",   NULL};
enum { DRAWS = 32, EXPERTS_MAX = 4096, TOKENS_MIN = 64, FIT_TOKENS_MIN = 64, CACHE = 4096 };

typedef struct {
  int64_t tokens, top_k, experts, ep;
  double alpha; /* 0: equal loads */
} routing;

/* splitmix64 (Steele, Lea, Flood 2014): the next of 2^53 numbers in [0, 1). */
static double next_random(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

typedef struct {
  int64_t rows;
  int32_t expert;
} seat;

/* Busiest first; ties to the lower expert. */
static int by_rows(const void *a, const void *b) {
  const seat *x = a, *y = b;
  if (x->rows != y->rows)
    return x->rows > y->rows ? -1 : 1;
  return x->expert - y->expert;
}

/* Whole rows that add up: what is missing goes to the busiest in turn, what is too much is taken from the idlest. */
static void settle(const routing *r, int64_t *rows) {
  seat seats[EXPERTS_MAX];
  int32_t n = (int32_t)r->experts;
  int64_t missing = r->tokens * r->top_k;
  for (int32_t e = 0; e < n; e++) {
    missing -= rows[e];
    seats[e] = (seat){rows[e], e};
  }
  qsort(seats, (size_t)n, sizeof *seats, by_rows);
  for (int64_t i = 0; missing > 0; i++, missing--)
    rows[seats[i % n].expert]++;
  for (int64_t i = 0; missing < 0; i++, missing++) {
    int32_t e = seats[n - 1 - i % n].expert;
    rows[rows[e] > 0 ? e : seats[0].expert]--;
  }
}

/* Takes from each expert what it has beyond the number of tokens. Tokens that lack choices so, about as many each, choose
 * the held experts in order, each unless they have it already. */
static void choose_once(const routing *r, int64_t *rows, int64_t first, int64_t held) {
  double lacks[EXPERTS_MAX + 1] = {0}, tokens = (double)r->tokens; /* tokens that lack so many choices */
  int64_t lost = 0;
  for (int64_t e = 0; e < r->experts; e++) {
    int64_t beyond = rows[e] > r->tokens ? rows[e] - r->tokens : 0;
    lost += beyond;
    rows[e] -= beyond;
  }
  int64_t most = lost / r->tokens + 1;
  lacks[most] = (double)(lost % r->tokens);
  lacks[most - 1] = tokens - lacks[most];
  for (int64_t e = first; e < first + held && lost > 0; e++) {
    double not_yet = 1 - (double)rows[e] / tokens, taken = 0;
    for (int64_t k = 1; k <= most; k++) {
      double moved = lacks[k] * not_yet;
      lacks[k] -= moved;
      lacks[k - 1] += moved;
      taken += moved;
    }
    rows[e] += (int64_t)(taken + 0.5);
  }
}

static void draw(const routing *r, uint64_t *state, int64_t *rows) {
  double total = (double)(r->tokens * r->top_k), power = 1 - r->alpha, value[EXPERTS_MAX], sum = 0;
  bool few = r->tokens * r->top_k <= r->experts;
  double low = pow(few ? 0.01 : 1, power), high = pow(few ? 2 : 0.8 * (double)r->tokens, power);
  for (int64_t e = 0; e < r->experts; e++)
    sum += value[e] = pow((high - low) * next_random(state) + low, 1 / power);
  for (int64_t e = 0; e < r->experts; e++)
    rows[e] = (int64_t)(value[e] / sum * total + 0.5);
  settle(r, rows);
}

static hec_grouped_load load_of(const routing *r) {
  int64_t rows[EXPERTS_MAX], held = r->experts / r->ep, total = r->tokens * r->top_k;
  hec_grouped_load mean = {0};
  uint64_t state = 1;
  int32_t n_draws = r->alpha > 0 ? DRAWS : 1;
  for (int32_t d = 0; d < n_draws; d++) {
    if (r->alpha > 0)
      draw(r, &state, rows);
    else /* strided round robin: what is left over goes to every rank alike */
      for (int64_t e = 0; e < r->experts; e++)
        rows[e] = total / r->experts + (e % held * r->ep + e / held < total % r->experts);
    int64_t first = 0, max = -1;
    for (int64_t rank = 0; rank < r->ep; rank++) {
      int64_t sum = 0;
      for (int64_t e = rank * held; e < (rank + 1) * held; e++)
        sum += rows[e];
      first = sum > max ? rank * held : first;
      max = sum > max ? sum : max;
    }
    choose_once(r, rows, first, held);
    hec_grouped_load load = hec_grouped_load_of(rows + first, (int32_t)held);
    double share = 1 / (double)n_draws;
    mean.rows += share * load.rows;
    mean.active += share * load.active;
    mean.busiest += share * load.busiest;
    for (int32_t t = 0; t < HEC_GROUPED_TILES; t++)
      mean.tiles[t] += share * load.tiles[t];
  }
  return mean;
}

/* Rows of one routing stand far apart in the table, and a draw takes a while. Not for several threads. */
static hec_grouped_load remembered(const routing *r) {
  static routing known[CACHE];
  static hec_grouped_load load[CACHE];
  uint64_t hash = hec_case_hash(hec_case_hash(hec_case_hash(hec_case_hash(0, r->tokens), r->top_k), r->experts), r->ep);
  size_t at = (size_t)(hec_case_hash(hash, (int64_t)(r->alpha * 1000)) % CACHE);
  routing *k = &known[at];
  if (k->tokens != r->tokens || k->top_k != r->top_k || k->experts != r->experts || k->ep != r->ep ||
      (k->alpha < r->alpha || k->alpha > r->alpha)) {
    *k = *r;
    load[at] = load_of(r);
  }
  return load[at];
}

/* CUTLASS-like kernels share constants, Triton kernels do by framework: their tiles come from its table. */
static const char *family_of(const char *kernel, const char *framework, hec_arena *arena) {
  if (strcmp(framework, "torch") == 0)
    return "torch";
  if (strncmp(kernel, "trt", 3) == 0)
    return "cutlass";
  if (strstr(kernel, "cutlass"))
    return "flashinfer-cutlass";
  if (strstr(kernel, "trtllm"))
    return "flashinfer-trtllm";
  return hec_arena_printf(arena, "triton-%.20s", framework);
}

/* Experts of Nemotron models have no gate matrix, whatever runs them. */
static bool is_gated(int64_t hidden, int64_t inter) {
  static const int64_t plain[][2] = {{2688, 1856}, {2048, 5120}, {8192, 5120}, {4096, 2688}};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (plain[i][0] == hidden && plain[i][1] == inter)
      return false;
  return true;
}

static bool read_alpha(const char *text, double *alpha) {
  char *end = NULL;
  *alpha = 0;
  if (strcmp(text, "balanced") == 0)
    return true;
  if (strncmp(text, "pl", 2) == 0)
    *alpha = strtod(text + 2, &end);
  return end && *end == '\0' && *alpha > 1 && *alpha <= 10;
}

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  const char *type = hec_case_file_text(csv, "dtype"), *kernel = hec_case_file_text(csv, "kernel");
  const char *family = family_of(kernel, hec_case_file_text(csv, "framework"), arena);
  hec_grouped_work *work = HEC_NEW(arena, hec_grouped_work, 1);
  routing r;
  int64_t tp, inter;
  c->variant = hec_arena_printf(arena, "%.20s %s", type, family);
  c->kind = hec_arena_printf(arena, "moe %s", c->variant);
  if (!hec_case_seconds(csv, arena, c) || !hec_case_whole(csv, "num_tokens", 1, &r.tokens, arena, c) ||
      !hec_case_whole(csv, "hidden", 1, &work->hidden, arena, c) ||
      !hec_case_whole(csv, "inter", 1, &inter, arena, c) || !hec_case_whole(csv, "topk", 1, &r.top_k, arena, c) ||
      !hec_case_whole(csv, "num_experts", 1, &r.experts, arena, c) ||
      !hec_case_whole(csv, "moe_tp", 1, &tp, arena, c) || !hec_case_whole(csv, "moe_ep", 1, &r.ep, arena, c))
    return;
  if (!read_alpha(hec_case_file_text(csv, "distribution"), &r.alpha))
    c->why_not = "distribution: expected balanced or plA with an exponent A above 1";
  else if (r.experts > EXPERTS_MAX || r.experts % r.ep != 0 || r.top_k > r.experts || inter < tp)
    c->why_not = "num_experts: expected at most 4096, a multiple of moe_ep, at least topk; inter: at least moe_tp";
  else if (strcmp(type, "bf16") != 0 && strcmp(type, "fp8block") != 0 && strcmp(type, "fp8") != 0)
    c->why_not = hec_arena_printf(arena, "dtype: the law knows bf16, fp8 and fp8block, found \"%.40s\"", type);
  if (c->why_not)
    return;
  work->precision = strcmp(type, "bf16") == 0 ? HEC_LAW_BF16 : HEC_LAW_FP8;
  work->inter = inter / tp;
  work->tokens = r.tokens;
  work->top_k = r.top_k;
  work->gated = is_gated(work->hidden, inter);
  work->load = remembered(&r);
  bool clean = strcmp(hec_case_file_text(csv, "flag"), "0") == 0;
  if (!clean)
    c->kind = hec_arena_printf(arena, "%s, flagged", c->kind);
  else if (r.tokens < TOKENS_MIN)
    c->kind = hec_arena_printf(arena, "%s, below %d tokens", c->kind, TOKENS_MIN);
  c->law = "grouped";
  c->work = work;
  c->fit = clean && r.tokens >= FIT_TOKENS_MIN;
  c->shape = hec_case_hash(hec_case_hash(hec_case_hash(hec_case_hash(0, work->hidden), inter), r.top_k), r.experts);
}

const hec_case_table hec_case_table_moe_ffn = {.file = "moe_ffn.csv", .columns = columns, .read = read};
