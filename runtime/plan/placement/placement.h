/* A placement: which experts stand in the slots of every rank, layer by layer, and nothing else; as serving frameworks
 * write it into files. One file and one row per format. A file is recognised by what is in it, never by its name.
 *
 * What a placement cannot say of a plan, and what is taken when one becomes a plan again:
 *   home      the rank that keeps an expert's parameters   ->  the lowest rank with a slot of it; the others are resident
 *   guests    copies for one micro-batch                   ->  slots like others
 *   quotas    how tokens are split over copies             ->  the dispatch rule of whoever uses it
 *   slices    experts in parts (FSDP)                      ->  an error: no format has them
 *
 * So a plan whose homes are the lowest holders and whose copies are all resident comes back whole. So does every
 * placement, the order of a rank's slots included. */
#pragma once
#include "models/json.h"
#include "runtime/base/text.h"
#include "runtime/plan/plan.h"

typedef struct {
  int32_t n_layers, n_experts, n_ranks;
  int32_t
      first_layer; /* the model's layer that is the first MoE layer, in formats that number dense layers too; -1: not
                          said: the file's first one */
} hec_placement_shape;

typedef struct hec_placement {
  hec_placement_shape shape;
  const char *origin;  /* the file, for messages; NULL: of a plan */
  const char *format;  /* its row's name; likewise */
  int32_t moves;       /* layers that its framework rearranges in every iteration, from here on; 0: none */
  int32_t *slot_at;    /* [n_layers * n_ranks + 1] CSR offsets: rank r of layer l at l * n_ranks + r */
  int32_t *slot;       /* [slot_at[last]] experts, in the order of the file */
  int64_t n_slots_max; /* room in `slot` */
} hec_placement;

/* A file being read. */
typedef struct {
  const char *origin, *text; /* zero-terminated */
  size_t length;
  const hec_json *json; /* NULL: the text is no JSON */
} hec_placement_file;

typedef struct {
  const char *name, *summary, *source; /* source: who reads and writes it */
  const char *row, *row_end;           /* names layer N in messages: row N row_end */
  bool counts_dense;                   /* numbers all layers of a model, not its MoE layers alone */
  bool even;                           /* every rank has as many slots; false: */
  const char *uneven;                  /* what whoever uses a file of other ranks must know */
  bool (*recognise)(const hec_placement_file *file);
  /* Fills every layer, in order, by hec_placement_put and hec_placement_close_rank; the shape stands already. */
  hec_status (*read)(const hec_placement_file *file, hec_placement *placement);
  /* Of a placement that hec_placement_write has checked. */
  void (*write)(const hec_placement *placement, hec_text *out);
} hec_placement_format;

#define HEC_PLACEMENT_FORMAT_LIST(X)                                                                                   \
  X(eplb)                                                                                                              \
  X(vllm_ascend)                                                                                                       \
  X(tensorrt_llm)
#define HEC_PLACEMENT_DECLARE(name) extern const hec_placement_format hec_placement_##name;
HEC_PLACEMENT_FORMAT_LIST(HEC_PLACEMENT_DECLARE)
extern const hec_placement_format *const hec_placement_formats[]; /* NULL-terminated */
/* By its row's name; HEC_BAD_INPUT lists those there are. */
hec_status hec_placement_format_of(const char *name, const hec_placement_format **format) HEC_MUST_USE;

/* Reads a file of any format for a model and ranks that are known. The file has at most 64 MiB, and a text must be
 * zero-terminated. Other numbers of layers, experts or ranks, an expert without a slot, or more slots of a rank than
 * experts are errors. They name file, place and layer. On the arena. O(bytes). */
hec_status hec_placement_read(const char *path, hec_placement_shape shape, hec_arena *arena,
                              hec_placement *placement) HEC_MUST_USE;
hec_status hec_placement_parse(const char *text, size_t length, const char *origin, hec_placement_shape shape,
                               hec_arena *arena, hec_placement *placement) HEC_MUST_USE;

/* HEC_BAD_INPUT names what the format cannot say: ranks with different numbers of slots, dense layers. What users must
 * know of such ranks where it can is added to `mind`. */
hec_status hec_placement_write(const hec_placement_format *format, const hec_placement *placement, hec_text *out,
                               hec_text *mind) HEC_MUST_USE;

/* The slots of a plan: each rank's experts ascending, home or copy of either kind. Sentences on what they do not say are
 * added to `lost`. HEC_BAD_INPUT: a plan in slices. On the arena. */
hec_status hec_placement_of_plan(const hec_plan *plan, int32_t first_layer, hec_arena *arena, hec_placement *placement,
                                 hec_text *lost) HEC_MUST_USE;
/* The placement's first plan->n_layers layers as homes and resident copies. */
void hec_placement_set(const hec_placement *placement, hec_plan *plan);

static inline int32_t hec_placement_slots(const hec_placement *p, int32_t layer, int32_t rank, const int32_t **slots) {
  const int32_t *at = p->slot_at + (size_t)layer * (size_t)p->shape.n_ranks + (size_t)rank;
  *slots = p->slot + at[0];
  return at[1] - at[0];
}

/* ---- For formats ---- */

/* The next slot, and the end of the rank whose turn it is; ranks of layer 0 first. */
void hec_placement_put(hec_placement *placement, int32_t expert);
void hec_placement_close_rank(hec_placement *placement, int32_t layer, int32_t rank);
/* The same for a layer whose slots belong to its ranks in order, as many to each: their number is a multiple of ranks. */
void hec_placement_close_layer(hec_placement *placement, int32_t layer);
/* The next slots, of an array of JSON: whole numbers from 0 to n_experts - 1. */
hec_status hec_placement_json_slots(const hec_placement_file *file, const hec_json_value *array,
                                    hec_placement *placement) HEC_MUST_USE;
