/* The load balancer's file of TensorRT-LLM's wide expert parallelism (moe_config.load_balancer; written by
 * examples/wide_ep/ep_load_balancer/generate_eplb_config.py):
 *
 *   initial_global_assignments:
 *     3: [138, 81, 60, ..]         # model layer: expert of each slot; slots belong to ranks in order, as many to each
 *     4: [24, 243, 72, ..]
 *   layer_updates_per_iter: 0      # layers whose experts move in every iteration; 0: none, the file is all there is
 *   num_slots: 288
 *
 * Keys are layers of the model, dense ones counted: they must follow each other, and the first is the first MoE layer.
 * ep_size, which older files have, must be the ranks. A file without assignments (online balancing) places nothing.
 *
 * Of YAML only this is read: comments, one "---" at the begin, "key: whole number" in any order, and the block above.
 * Its lists stand in brackets (over several lines, too) or a slot a line as "- 138". No tabs, quotes, tags, anchors,
 * maps in braces. One pass over the text. Own code: a YAML library would take what TensorRT-LLM never writes. */
#include "runtime/plan/placement/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96, FOUND_BYTES = 40, DIGITS_MAX = 9 };

static const char assignments[] = "initial_global_assignments";

typedef struct {
  const char *origin, *at, *end;
  int32_t line;
  char field[NAME_BYTES]; /* where the cursor is, for messages */
} yaml;

/* What stands at the cursor, up to a blank or a bracket. */
static hec_status wrong(const yaml *y, const char *expected) {
  char found[FOUND_BYTES];
  size_t n = 0;
  for (const char *c = y->at; c < y->end && n + 1 < sizeof found && !strchr("\n\r", *c) && !(n > 0 && *c == ' '); c++)
    found[n++] = (char)(*c > ' ' && *c < 127 ? *c : *c == ' ' ? ' ' : '?');
  found[n] = 0;
  return hec_fail(HEC_BAD_INPUT, "%s:%" PRId32 ": %s: expected %s, found %s%s%s", y->origin, y->line, y->field,
                  expected, n > 0 ? "\"" : "", n > 0 ? found : "the end of a line", n > 0 ? "\"" : "");
}

static void name_field(yaml *y, const char *name) {
  (void)snprintf(y->field, sizeof y->field, "%s", name);
}

static void skip_blanks(yaml *y) {
  while (y->at < y->end && (*y->at == ' ' || *y->at == '\r'))
    y->at++;
}

/* Over blanks, ends of lines and comments; `indent`: blanks before what comes. */
static void skip_lines(yaml *y, int32_t *indent) {
  const char *line_begin = NULL;
  for (;; y->at++) {
    skip_blanks(y);
    for (bool comment = y->at < y->end && *y->at == '#'; comment && y->at < y->end && *y->at != '\n';)
      y->at++;
    if (y->at == y->end || *y->at != '\n')
      break;
    y->line++;
    line_begin = y->at + 1;
  }
  if (line_begin)
    *indent = (int32_t)(y->at - line_begin);
}

/* Digits, and behind them the end of the word. No zeros before others: 010 is 8 in YAML 1.1 and 10 in 1.2. */
static hec_status read_number(yaml *y, int32_t min, int32_t max, int32_t *out) {
  char expected[64];
  (void)snprintf(expected, sizeof expected, "a whole number from %" PRId32 " to %" PRId32, min, max);
  int32_t value = 0, n = 0;
  while (y->at + n < y->end && y->at[n] >= '0' && y->at[n] <= '9' && n <= DIGITS_MAX)
    value = n < DIGITS_MAX ? value * 10 + (y->at[n++] - '0') : (n++, value);
  bool ends = y->at + n == y->end || strchr(" ,]:\r\n", y->at[n]);
  bool octal = n > 1 && y->at[0] == '0';
  if (n == 0 || n > DIGITS_MAX || octal || !ends || value < min || value > max)
    return wrong(y, expected);
  y->at += n;
  *out = value;
  return HEC_OK;
}

/* Nothing but a comment on the rest of the line, behind a blank; called behind a word or its blanks. */
static hec_status end_line(yaml *y) {
  skip_blanks(y);
  if (y->at == y->end || *y->at == '\n' || (*y->at == '#' && y->at[-1] == ' '))
    return HEC_OK;
  return wrong(y, "the end of the line");
}

static hec_status read_colon(yaml *y) {
  if (y->at == y->end || *y->at != ':' || (y->at + 1 < y->end && !strchr(" \r\n", y->at[1])))
    return wrong(y, "\": \"");
  y->at++;
  return HEC_OK;
}

static hec_status read_slot(yaml *y, hec_placement *placement, int32_t layer_key, int32_t index) {
  int32_t expert;
  (void)snprintf(y->field, sizeof y->field, "%s[%" PRId32 "][%" PRId32 "]", assignments, layer_key, index);
  HEC_TRY(read_number(y, 0, placement->shape.n_experts - 1, &expert));
  hec_placement_put(placement, expert);
  return HEC_OK;
}

/* [138, 81, ..], the cursor on the bracket. */
static hec_status read_flow(yaml *y, hec_placement *placement, int32_t key, int32_t *n) {
  int32_t indent;
  do {
    y->at++;
    skip_lines(y, &indent);
    HEC_TRY(read_slot(y, placement, key, (*n)++));
    skip_lines(y, &indent);
  } while (y->at < y->end && *y->at == ',');
  if (y->at == y->end || *y->at != ']')
    return wrong(y, "\",\" or \"]\"");
  y->at++;
  return end_line(y);
}

/* "- 138", a line each, no farther left than the layer's key. */
static hec_status read_lines(yaml *y, hec_placement *placement, int32_t key, int32_t *indent, int32_t *n) {
  int32_t min = *indent;
  skip_lines(y, indent);
  if (*indent < min || y->at == y->end || *y->at != '-')
    return wrong(y, "a list of experts, one for each slot");
  while (*indent >= min && y->at < y->end && *y->at == '-') {
    if (y->at + 1 == y->end || y->at[1] != ' ') /* "-0" is a number */
      return wrong(y, "\"- \" and an expert");
    y->at++;
    skip_blanks(y);
    HEC_TRY(read_slot(y, placement, key, (*n)++));
    HEC_TRY(end_line(y));
    skip_lines(y, indent);
  }
  return HEC_OK;
}

static hec_status check_slots(yaml *y, const hec_placement *placement, int32_t layer, int32_t key, int32_t n) {
  char where[NAME_BYTES];
  int32_t n_ranks = placement->shape.n_ranks, first = layer > 0 ? placement->slot_at[n_ranks] : n;
  (void)snprintf(where, sizeof where, "%s[%" PRId32 "]", assignments, key);
  if (n != first)
    return hec_fail(HEC_BAD_INPUT,
                    "%s:%" PRId32 ": %s: expected %" PRId32 " slots, as in the first layer, found %" PRId32, y->origin,
                    y->line, where, first, n);
  if (n % n_ranks != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "%s:%" PRId32 ": %s: expected as many slots for each of %" PRId32 " ranks (`ranks`), found %" PRId32
                    " slots",
                    y->origin, y->line, where, n_ranks, n);
  return HEC_OK;
}

/* The model's number of the next layer. They follow each other from --first-layer, or from where the file begins. */
static hec_status read_layer_key(yaml *y, hec_placement *placement, int32_t layer, int32_t *key) {
  const char *begin = y->at;
  int32_t *first = &placement->shape.first_layer;
  name_field(y, assignments);
  HEC_TRY(read_number(y, 0, layer == 0 && *first < 0 ? 10000 : 999999999, key));
  if (layer == 0 && *first < 0)
    *first = *key;
  if (*key == *first + layer)
    return HEC_OK;
  char expected[80];
  (void)snprintf(expected, sizeof expected, "layer %" PRId32 "%s", *first + layer,
                 layer == 0 ? ", the first MoE layer (`first_layer`)" : ", which follows the one before");
  y->at = begin;
  return wrong(y, expected);
}

/* "3: [..]", the cursor on the 3. */
static hec_status read_layer(yaml *y, hec_placement *placement, int32_t layer, int32_t *indent) {
  int32_t key, n = 0;
  HEC_TRY(read_layer_key(y, placement, layer, &key));
  (void)snprintf(y->field, sizeof y->field, "%s[%" PRId32 "]", assignments, key);
  HEC_TRY(read_colon(y));
  skip_blanks(y);
  if (y->at < y->end && *y->at == '[') {
    HEC_TRY(read_flow(y, placement, key, &n));
    skip_lines(y, indent);
  } else {
    HEC_TRY(end_line(y));
    HEC_TRY(read_lines(y, placement, key, indent, &n));
  }
  HEC_TRY(check_slots(y, placement, layer, key, n));
  hec_placement_close_layer(placement, layer);
  return HEC_OK;
}

static hec_status read_layers(yaml *y, hec_placement *placement, int32_t *indent) {
  int32_t deep = 0, n = 0;
  HEC_TRY(end_line(y));
  skip_lines(y, &deep);
  *indent = deep;
  for (; deep > 0 && *indent == deep && y->at < y->end; n++) {
    if (n == placement->shape.n_layers)
      break;
    HEC_TRY(read_layer(y, placement, n, indent));
  }
  name_field(y, assignments);
  char expected[80];
  if (n < placement->shape.n_layers)
    (void)snprintf(expected, sizeof expected, "the trace's %" PRId32 " MoE layers, after %" PRId32 " the next",
                   placement->shape.n_layers, n);
  else if (*indent > 0 && y->at < y->end)
    (void)snprintf(expected, sizeof expected, "no more than the trace's %" PRId32 " MoE layers", n);
  else
    return HEC_OK;
  return wrong(y, expected);
}

static bool recognise(const hec_placement_file *file) {
  static const char *const keys[] = {assignments, "num_slots", "layer_updates_per_iter"};
  for (size_t i = 0; !file->json && i < sizeof keys / sizeof *keys; i++)
    for (const char *at = file->text; (at = strstr(at, keys[i])) != NULL; at++)
      if ((at == file->text || at[-1] == '\n') && at[strlen(keys[i])] == ':')
        return true;
  return false;
}

/* The keys that may stand at the left, and what was found of them. */
enum { ASSIGNMENTS, NUM_SLOTS, UPDATES, EP_SIZE, N_KEYS };
static const char *const key_names[N_KEYS] = {assignments, "num_slots", "layer_updates_per_iter", "ep_size"};

static hec_status read_key(yaml *y, hec_placement *placement, int32_t found[N_KEYS], int32_t *indent) {
  size_t n = 0;
  name_field(y, "the file");
  while (y->at + n < y->end && !strchr(": \r\n", y->at[n]))
    n++;
  int key = 0;
  while (key < N_KEYS && (strlen(key_names[key]) != n || strncmp(y->at, key_names[key], n) != 0))
    key++;
  if (key == N_KEYS)
    return wrong(y, "initial_global_assignments, num_slots, layer_updates_per_iter or ep_size");
  name_field(y, key_names[key]);
  if (found[key] >= 0)
    return wrong(y, "the key once");
  y->at += n;
  HEC_TRY(read_colon(y));
  skip_blanks(y);
  found[key] = 0;
  if (key == ASSIGNMENTS)
    return read_layers(y, placement, indent);
  HEC_TRY(read_number(y, key == EP_SIZE ? placement->shape.n_ranks : 0,
                      key == EP_SIZE ? placement->shape.n_ranks : 100000000, &found[key]));
  HEC_TRY(end_line(y));
  skip_lines(y, indent);
  return HEC_OK;
}

static hec_status read(const hec_placement_file *file, hec_placement *placement) {
  yaml y = {.origin = file->origin, .at = file->text, .end = file->text + file->length, .line = 1};
  int32_t indent = 0, found[N_KEYS] = {-1, -1, -1, -1};
  name_field(&y, "the file");
  if (file->length >= 3 && strncmp(file->text, "---", 3) == 0) {
    y.at += 3;
    HEC_TRY(end_line(&y));
  }
  skip_lines(&y, &indent);
  while (y.at < y.end) {
    if (indent != 0)
      return wrong(&y, "a key at the begin of the line");
    HEC_TRY(read_key(&y, placement, found, &indent));
  }
  if (found[ASSIGNMENTS] < 0)
    return hec_fail(HEC_BAD_INPUT, "%s: %s: expected the experts of every layer, found none: the file places nothing",
                    file->origin, assignments);
  int32_t n_slots = placement->slot_at[placement->shape.n_ranks];
  if (found[NUM_SLOTS] != n_slots)
    return hec_fail(HEC_BAD_INPUT, "%s: num_slots: expected %" PRId32 ", as in the lists, found %s%" PRId32,
                    file->origin, n_slots, found[NUM_SLOTS] < 0 ? "nothing, " : "", found[NUM_SLOTS]);
  placement->moves = found[UPDATES] > 0 ? found[UPDATES] : 0;
  return HEC_OK;
}

static void write(const hec_placement *placement, hec_text *out) {
  int32_t n_ranks = placement->shape.n_ranks, first = placement->shape.first_layer;
  hec_text_printf(out, "%s:\n", assignments);
  for (int32_t layer = 0; layer < placement->shape.n_layers; layer++) {
    const int32_t *at = placement->slot_at + (size_t)layer * (size_t)n_ranks;
    hec_text_printf(out, "  %" PRId32 ": [", (first > 0 ? first : 0) + layer);
    for (int32_t i = at[0]; i < at[n_ranks]; i++)
      hec_text_printf(out, "%s%" PRId32, i > at[0] ? ", " : "", placement->slot[i]);
    hec_text_add(out, "]\n");
  }
  hec_text_printf(out, "layer_updates_per_iter: 0\nnum_slots: %" PRId32 "\n", placement->slot_at[n_ranks]);
}

const hec_placement_format hec_placement_tensorrt_llm = {
    .name = "tensorrt-llm",
    .summary = "YAML with initial_global_assignments and num_slots",
    .source = "TensorRT-LLM, examples/wide_ep/ep_load_balancer",
    .row = "initial_global_assignments[",
    .row_end = "]",
    .counts_dense = true,
    .even = true,
    .recognise = recognise,
    .read = read,
    .write = write,
};
