/* The table of formats, what is checked alike for all of them, and the way between placements and plans.
 *
 * A placement is complete when every expert of every layer has a slot. Slots of a rank are counted. So one expert may
 * stand twice on a rank (EPLB does that), but no rank has more slots than experts. Linear in slots + layers * experts.
 */
#include "runtime/plan/placement/placement.h"

#include "runtime/base/files.h"
#include "runtime/base/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_BYTES_MAX = 64 << 20, FOUND_BYTES = 96 };

#define ROW(name) &hec_placement_##name,
const hec_placement_format *const hec_placement_formats[] = {HEC_PLACEMENT_FORMAT_LIST(ROW) NULL};
#undef ROW

HEC_TABLE_OF(hec_placement_format);
hec_status hec_placement_format_of(const char *name, const hec_placement_format **format) {
  *format = hec_table_find(hec_placement_formats, name);
  return *format ? HEC_OK : hec_table_unknown(&(hec_table){.rows = hec_placement_formats}, "`export`", name);
}

/* ---- Reading ---- */

void hec_placement_put(hec_placement *placement, int32_t expert) {
  size_t last = (size_t)placement->shape.n_layers * (size_t)placement->shape.n_ranks;
  HEC_ASSERT(placement->slot_at[last] < placement->n_slots_max);
  placement->slot[placement->slot_at[last]++] = expert; /* the last offset counts while the others are being set */
}

void hec_placement_close_rank(hec_placement *placement, int32_t layer, int32_t rank) {
  size_t last = (size_t)placement->shape.n_layers * (size_t)placement->shape.n_ranks;
  size_t next = (size_t)layer * (size_t)placement->shape.n_ranks + (size_t)rank + 1;
  HEC_ASSERT(next <= last);
  placement->slot_at[next] = placement->slot_at[last];
}

void hec_placement_close_layer(hec_placement *placement, int32_t layer) {
  int32_t n_ranks = placement->shape.n_ranks;
  int32_t *at = placement->slot_at + (size_t)layer * (size_t)n_ranks;
  int32_t n = placement->slot_at[(size_t)placement->shape.n_layers * (size_t)n_ranks] - at[0];
  HEC_ASSERT(n % n_ranks == 0);
  for (int32_t rank = 0; rank < n_ranks; rank++)
    at[rank + 1] = at[rank] + n / n_ranks;
}

hec_status hec_placement_json_slots(const hec_placement_file *file, const hec_json_value *array,
                                    hec_placement *placement) {
  for (const hec_json_value *v = hec_json_first(array); v; v = hec_json_next(v)) {
    double number = hec_json_is_number(v) ? hec_json_number(v) : -1;
    if (!(number >= 0 && number < placement->shape.n_experts && (double)(int32_t)number == number)) {
      char expected[FOUND_BYTES];
      (void)snprintf(expected, sizeof expected, "an expert from 0 to %" PRId32, placement->shape.n_experts - 1);
      return hec_json_error(file->json, v, expected);
    }
    hec_placement_put(placement, (int32_t)number);
  }
  return HEC_OK;
}

static int32_t number_of_layer(const hec_placement *p, int32_t layer) {
  return p->shape.first_layer > 0 ? p->shape.first_layer + layer : layer;
}

/* Every expert somewhere, no rank with more slots than experts. */
static hec_status check_layer(const hec_placement *p, const hec_placement_format *format, int32_t layer,
                              uint8_t *seen) {
  int32_t n_experts = p->shape.n_experts, number = number_of_layer(p, layer);
  memset(seen, 0, (size_t)n_experts);
  for (int32_t rank = 0; rank < p->shape.n_ranks; rank++) {
    const int32_t *slots;
    int32_t n = hec_placement_slots(p, layer, rank, &slots);
    if (n > n_experts)
      return hec_fail(HEC_BAD_INPUT,
                      "%s: %s%" PRId32 "%s: expected at most %" PRId32 " slots on a rank, as there are experts, found "
                      "%" PRId32 " on rank %" PRId32,
                      p->origin, format->row, number, format->row_end, n_experts, n, rank);
    for (int32_t i = 0; i < n; i++)
      seen[slots[i]] = 1;
  }
  const uint8_t *none = memchr(seen, 0, (size_t)n_experts);
  if (!none)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: %s%" PRId32 "%s: expected a slot for every expert, found none for expert %d",
                  p->origin, format->row, number, format->row_end, (int)(none - seen));
}

static hec_status check(const hec_placement *p, const hec_placement_format *format) {
  uint8_t *seen = hec_malloc((size_t)p->shape.n_experts, 1);
  hec_status status = HEC_OK;
  for (int32_t layer = 0; layer < p->shape.n_layers && status == HEC_OK; layer++)
    status = check_layer(p, format, layer, seen);
  free(seen);
  return status;
}

static hec_status unknown(const char *origin) {
  HEC_SCOPED(hec_text) text = {0};
  for (int32_t i = 0; hec_placement_formats[i]; i++)
    hec_text_printf(&text, "%s%s (%s)", i > 0 ? "; " : "", hec_placement_formats[i]->name,
                    hec_placement_formats[i]->summary);
  return hec_fail(HEC_BAD_INPUT, "%s: expected a placement of a known format, found none of: %s", origin, text.data);
}

static hec_status read_as(const hec_placement_format *format, const hec_placement_file *file,
                          hec_placement *placement) {
  const hec_placement_shape *shape = &placement->shape;
  if (!format)
    return unknown(file->origin);
  if (shape->first_layer > 0 && !format->counts_dense)
    return hec_fail(HEC_BAD_INPUT,
                    "%s: expected a format that numbers dense layers beside `first_layer` %" PRId32
                    ", found %s, which numbers MoE layers alone: leave it out",
                    file->origin, shape->first_layer, format->name);
  placement->format = format->name;
  HEC_TRY(format->read(file, placement));
  return check(placement, format);
}

hec_status hec_placement_parse(const char *text, size_t length, const char *origin, hec_placement_shape shape,
                               hec_arena *arena, hec_placement *placement) {
  HEC_OPENED(hec_json) *json = NULL;
  size_t begin = 0;
  while (begin < length && strchr(" \t\r\n", text[begin]) && text[begin])
    begin++;
  if (begin < length && (text[begin] == '{' || text[begin] == '['))
    HEC_TRY(hec_json_parse(text, length, origin, &json));
  const hec_placement_file file = {.origin = origin, .text = text, .length = length, .json = json};
  const hec_placement_format *format = NULL;
  for (int32_t i = 0; hec_placement_formats[i] && !format; i++)
    if (hec_placement_formats[i]->recognise(&file))
      format = hec_placement_formats[i];
  size_t ranks = (size_t)shape.n_layers * (size_t)shape.n_ranks;
  hec_placement read = {.shape = shape,
                        .origin = hec_arena_text(arena, origin),
                        .slot_at = HEC_NEW(arena, int32_t, ranks + 1),
                        .n_slots_max = (int64_t)(length / 2) + 1}; /* a digit and what ends it */
  read.slot = HEC_NEW(arena, int32_t, read.n_slots_max);
  HEC_TRY(read_as(format, &file, &read));
  *placement = read;
  return HEC_OK;
}

hec_status hec_placement_read(const char *path, hec_placement_shape shape, hec_arena *arena, hec_placement *placement) {
  char *text;
  size_t length;
  HEC_TRY(hec_file_read(path, "a placement", FILE_BYTES_MAX, &text, &length));
  hec_status status = hec_placement_parse(text, length, path, shape, arena, placement);
  free(text);
  return status;
}

/* ---- Writing ---- */

/* The first rank whose slots are not as many as those of rank 0 in layer 0, as layer * n_ranks + rank; -1: none. */
static int64_t find_uneven(const hec_placement *p) {
  int64_t n = (int64_t)p->shape.n_layers * p->shape.n_ranks;
  for (int64_t i = 1; i < n; i++)
    if (p->slot_at[i + 1] - p->slot_at[i] != p->slot_at[1])
      return i;
  return -1;
}

hec_status hec_placement_write(const hec_placement_format *format, const hec_placement *placement, hec_text *out,
                               hec_text *mind) {
  if (placement->shape.first_layer > 0 && !format->counts_dense)
    return hec_fail(HEC_BAD_INPUT,
                    "`first_layer`: expected 0 or nothing beside `export` %s, which numbers MoE layers alone, found "
                    "%" PRId32,
                    format->name, placement->shape.first_layer);
  int64_t i = find_uneven(placement);
  if (i >= 0 && format->even)
    return hec_fail(HEC_BAD_INPUT,
                    "`export` %s: expected as many slots on every rank, which is all that the format can say, found "
                    "%" PRId32 " on rank 0 of layer 0 and %" PRId32 " on rank %d of layer %d",
                    format->name, placement->slot_at[1], placement->slot_at[i + 1] - placement->slot_at[i],
                    (int)(i % placement->shape.n_ranks), (int)(i / placement->shape.n_ranks));
  if (i >= 0)
    hec_text_printf(mind, "%s ", format->uneven);
  format->write(placement, out);
  return HEC_OK;
}

/* ---- Plans ---- */

typedef struct {
  int64_t n_guests, n_homes; /* copies for a micro-batch; homes that are not the lowest holder */
} losses;

static int32_t count_slots(const hec_plan *plan) {
  int64_t n = (int64_t)plan->n_layers * plan->n_experts;
  for (int32_t layer = 0; layer < plan->n_layers; layer++)
    n += plan->copy_at[(size_t)layer * (size_t)(plan->n_experts + 1) + (size_t)plan->n_experts];
  HEC_ASSERT(n <= INT32_MAX);
  return (int32_t)n;
}

static void count_losses(const hec_plan *plan, losses *lost) {
  for (int32_t layer = 0; layer < plan->n_layers; layer++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies copies = hec_plan_copies(plan, layer, e);
      for (int32_t i = 0; i < copies.n; i++)
        lost->n_guests += copies.kind[i] == HEC_COPY_GUEST;
      lost->n_homes += copies.n > 0 && copies.rank[0] < hec_plan_home(plan, layer, e);
    }
}

static void say_lost(const hec_plan *plan, hec_text *out) {
  losses lost = {0};
  count_losses(plan, &lost);
  if (lost.n_guests > 0)
    hec_text_printf(out, "In it %" PRId64 " copies that are gathered for one micro-batch look like those that stay. ",
                    lost.n_guests);
  if (lost.n_homes > 0)
    hec_text_printf(out,
                    "It does not say which rank keeps the parameters of an expert. Its readers take the first rank "
                    "that has the expert; for %" PRId64 " experts the policy chose another rank. ",
                    lost.n_homes);
  if (plan->quota_at)
    hec_text_add(out, "It does not say how tokens are split over copies. ");
}

hec_status hec_placement_of_plan(const hec_plan *plan, int32_t first_layer, hec_arena *arena, hec_placement *placement,
                                 hec_text *lost) {
  if (plan->n_slices > 1)
    return hec_fail(HEC_BAD_INPUT,
                    "`export`: expected a plan of whole experts, found every expert in %" PRId32
                    " slices, which no placement file can say",
                    plan->n_slices);
  hec_placement p = {.shape = {plan->n_layers, plan->n_experts, plan->n_ranks, first_layer}};
  p.n_slots_max = count_slots(plan);
  p.slot = HEC_NEW(arena, int32_t, p.n_slots_max);
  p.slot_at = HEC_NEW(arena, int32_t, (size_t)plan->n_layers * (size_t)plan->n_ranks + 1);
  int32_t *filled = HEC_NEW(arena, int32_t, plan->n_ranks);
  int32_t *holders = HEC_NEW(arena, int32_t, (size_t)plan->n_ranks + (size_t)plan->copy_capacity);
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    int32_t *at = p.slot_at + (size_t)layer * (size_t)plan->n_ranks;
    for (int32_t e = 0; e < plan->n_experts; e++)
      for (int32_t i = 0, n = hec_plan_holders(plan, layer, e, holders); i < n; i++)
        at[holders[i] + 1]++;
    for (int32_t r = 0; r < plan->n_ranks; r++) {
      filled[r] = at[r];
      at[r + 1] += at[r];
    }
    for (int32_t e = 0; e < plan->n_experts; e++)
      for (int32_t i = 0, n = hec_plan_holders(plan, layer, e, holders); i < n; i++)
        p.slot[filled[holders[i]]++] = e;
  }
  say_lost(plan, lost);
  *placement = p;
  return HEC_OK;
}

void hec_placement_set(const hec_placement *placement, hec_plan *plan) {
  HEC_ASSERT(plan->n_slices == 1 && plan->n_layers <= placement->shape.n_layers);
  HEC_ASSERT(plan->n_experts == placement->shape.n_experts && plan->n_ranks == placement->shape.n_ranks);
  plan->slots = 0;
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    hec_plan_clear_copies(plan, layer);
    for (int32_t e = 0; e < plan->n_experts; e++)
      hec_plan_set_home(plan, layer, e, plan->n_ranks - 1);
    const int32_t *slots;
    for (int32_t rank = plan->n_ranks - 1; rank >= 0; rank--)
      for (int32_t i = hec_placement_slots(placement, layer, rank, &slots) - 1; i >= 0; i--)
        hec_plan_set_home(plan, layer, slots[i], rank);
    for (int32_t rank = 0; rank < plan->n_ranks; rank++) {
      int32_t n = hec_placement_slots(placement, layer, rank, &slots);
      plan->slots = n > plan->slots ? n : plan->slots;
      for (int32_t i = 0; i < n; i++) {
        bool again = rank != hec_plan_home(plan, layer, slots[i]);
        for (int32_t k = 0; k < i && !again; k++)
          again = slots[k] == slots[i];
        if (again)
          hec_plan_add_copy(plan, layer, slots[i], rank, HEC_COPY_RESIDENT);
      }
    }
  }
}
