/* Header fields are a table: name, kind, where the value goes. Unknown keys are skipped whatever they hold; known ones
 * may come in any order, once. What depends on two fields is checked when all are there, at the line of the later
 * culprit. */
#include "traces/trace_header.h"

#include "runtime/base/nearest.h"
#include "runtime/base/value.h"
#include "traces/transitions.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { AS_TEXT, AS_NUMBER, AS_RAW, AS_RANGE, AS_TRANSITIONS } field_kind;

typedef struct {
  const char *key;
  field_kind kind;
  size_t offset; /* in found_header */
} field;

enum { KEYS_KEPT = 8 };

typedef struct {
  hec_trace_header header;
  char *format, *layout, *counted;
  int32_t version;
  int64_t range[2];
  hec_transitions transitions; /* malloc family, till they are in the header */
  char unknown[KEYS_KEPT][48]; /* [n_unknown] keys */
  int n_unknown;
} found_header;

#define IN_HEADER(member) offsetof(found_header, header.member)
enum { FORMAT, VERSION, LAYERS, EXPERTS, TOP_K, SOURCES, LAYOUT, PHASE, COUNTED, TRANSITIONS, N_CHECKED };
static const field fields[] = {
    [FORMAT] = {"format", AS_TEXT, offsetof(found_header, format)},
    [VERSION] = {"version", AS_NUMBER, offsetof(found_header, version)},
    [LAYERS] = {"layers", AS_NUMBER, IN_HEADER(n_layers)},
    [EXPERTS] = {"experts", AS_NUMBER, IN_HEADER(n_experts)},
    [TOP_K] = {"top_k", AS_NUMBER, IN_HEADER(top_k)},
    [SOURCES] = {"source_ranks", AS_NUMBER, IN_HEADER(n_sources)},
    [LAYOUT] = {"layout", AS_TEXT, offsetof(found_header, layout)},
    [PHASE] = {"phase", AS_TEXT, IN_HEADER(phase_text)},
    [COUNTED] = {"counted", AS_TEXT, offsetof(found_header, counted)},
    [TRANSITIONS] = {"transitions", AS_TRANSITIONS, offsetof(found_header, transitions)},
    {"name", AS_TEXT, IN_HEADER(name)},
    {"source", AS_TEXT, IN_HEADER(source)},
    {"license", AS_TEXT, IN_HEADER(license)},
    {"model", AS_TEXT, IN_HEADER(model)},
    {"notes", AS_TEXT, IN_HEADER(notes)},
    {"unit", AS_TEXT, IN_HEADER(unit)},
    {"ranks", AS_NUMBER, IN_HEADER(ranks)},
    {"devices_per_node", AS_NUMBER, IN_HEADER(devices_per_node)},
    {"synthetic", AS_RAW, IN_HEADER(synthetic)},
    {"shape", AS_RAW, IN_HEADER(shape)},
    {"transitions_over", AS_RANGE, offsetof(found_header, range)},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const char layout_per_source[] = "layer x source_rank x expert", layout_totals[] = "layer x expert";

static const field *find(const char *key) {
  for (size_t i = 0; i < N_FIELDS; i++)
    if (strcmp(key, fields[i].key) == 0)
      return &fields[i];
  return NULL;
}

bool hec_trace_header_knows(const char *key) {
  return find(key) != NULL;
}

/* ---- reading ---- */

/* [first, last] */
static hec_status scan_range(hec_scan *scan, int64_t range[2]) {
  uint64_t value = 0;
  HEC_TRY(hec_scan_expect(scan, '['));
  for (int i = 0; i < 2; i++) {
    HEC_TRY(hec_scan_integer(scan, i > 0 ? (uint64_t)range[0] : 0, (UINT64_C(1) << 53) - 1, &value));
    range[i] = (int64_t)value;
    HEC_TRY(hec_scan_expect(scan, i == 0 ? ',' : ']'));
  }
  return HEC_OK;
}

/* Sizes are known where the header has named them before. */
static hec_status scan_transitions(hec_scan *scan, found_header *found) {
  hec_transitions *t = &found->transitions;
  t->n_pairs = found->header.n_layers > 0 ? found->header.n_layers - 1 : -1;
  t->n_experts = found->header.n_experts > 0 ? found->header.n_experts : -1;
  hec_status status = hec_transitions_scan(scan, t);
  scan->n_indices = 0;
  return status;
}

static hec_status scan_value(hec_scan *scan, hec_arena *arena, const field *f, found_header *found) {
  void *to = (char *)found + f->offset;
  bool is_null = false;
  if (f->kind == AS_NUMBER) {
    uint64_t value = 0;
    bool version = f == &fields[VERSION];
    HEC_TRY(hec_scan_integer(scan, 1, version ? 1 : HEC_TRACE_DIMENSION_MAX, &value));
    *(int32_t *)to = (int32_t)value;
    return HEC_OK;
  }
  HEC_TRY(hec_scan_null(scan, &is_null));
  if (is_null)
    return HEC_OK;
  if (f->kind == AS_RANGE)
    return scan_range(scan, to);
  if (f->kind == AS_TRANSITIONS)
    return scan_transitions(scan, found);
  HEC_SCOPED(hec_text) text = {0};
  HEC_TRY(f->kind == AS_RAW ? hec_scan_raw(scan, &text) : hec_scan_text(scan, &text));
  *(char **)to = hec_arena_text(arena, text.data);
  return HEC_OK;
}

/* Fails at field `which` (its line, its key). */
static hec_status wrong(hec_scan *scan, const int64_t *line, int which, const char *found, const char *expected) {
  if (line[which] != 0)
    scan->line = line[which];
  (void)snprintf(scan->key, sizeof scan->key, "%s", fields[which].key);
  scan->n_indices = 0;
  return hec_scan_fail(scan, found, "%s", expected);
}

static hec_status wrong_text(hec_scan *scan, const int64_t *line, int which, const char *found, const char *expected) {
  char quoted[64];
  (void)snprintf(quoted, sizeof quoted, "\"%.48s%s\"", found, strlen(found) > 48 ? "..." : "");
  return wrong(scan, line, which, quoted, expected);
}

static hec_status check_phase(hec_scan *scan, const int64_t *line, hec_trace_header *header) {
  static const struct {
    const char *text;
    hec_phase phase;
  } known[] = {{"", HEC_PHASE_TRAIN},
               {"train", HEC_PHASE_TRAIN},
               {"training", HEC_PHASE_TRAIN},
               {"prefill", HEC_PHASE_FORWARD},
               {"decode", HEC_PHASE_FORWARD},
               {"prefill+decode", HEC_PHASE_FORWARD},
               {"decode+prefill", HEC_PHASE_FORWARD},
               {"both", HEC_PHASE_FORWARD},
               {"forward", HEC_PHASE_FORWARD}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(header->phase_text, known[i].text) == 0) {
      header->phase = known[i].phase;
      return HEC_OK;
    }
  return wrong_text(scan, line, PHASE, header->phase_text, "train, prefill, decode, prefill+decode or forward");
}

static hec_status check_layout(hec_scan *scan, const int64_t *line, found_header *found) {
  hec_trace_header *header = &found->header;
  if (!found->layout) {
    header->per_source = header->n_sources > 1;
  } else if (strcmp(found->layout, layout_per_source) == 0) {
    header->per_source = true;
    if (header->n_sources == 0)
      return wrong(scan, line, SOURCES, "no such key", "this key in the header (the layout has source ranks)");
  } else if (strcmp(found->layout, layout_totals) == 0) {
    if (header->n_sources > 1)
      return wrong_text(scan, line, LAYOUT, found->layout,
                        "\"layer x source_rank x expert\" (source_ranks is above 1)");
  } else {
    return wrong_text(scan, line, LAYOUT, found->layout, "\"layer x source_rank x expert\" or \"layer x expert\"");
  }
  header->n_sources = header->n_sources > 0 ? header->n_sources : 1;
  return HEC_OK;
}

static hec_status check_sizes(hec_scan *scan, const int64_t *line, const hec_trace_header *header) {
  char found[96], expected[96];
  if (header->top_k > header->n_experts) {
    (void)snprintf(expected, sizeof expected, "at most %" PRId32 " (the number of experts)", header->n_experts);
    (void)snprintf(found, sizeof found, "%" PRId32, header->top_k);
    return wrong(scan, line, TOP_K, found, expected);
  }
  int64_t rows = (int64_t)header->n_layers * header->n_sources;
  if (rows > HEC_TRACE_COUNTS_MAX / header->n_experts) {
    (void)snprintf(found, sizeof found, "%" PRId32 " x %" PRId32 " x %" PRId32, header->n_layers, header->n_sources,
                   header->n_experts);
    (void)snprintf(expected, sizeof expected, "at most %d counts in a record (layers x source_ranks x experts)",
                   HEC_TRACE_COUNTS_MAX);
    return wrong(scan, line, LAYERS, found, expected);
  }
  return HEC_OK;
}

/* What was read before the header named its sizes is compared with them now; then it becomes dense. */
static hec_status check_transitions(hec_scan *scan, const int64_t *line, hec_arena *arena, found_header *found) {
  const hec_transitions *t = &found->transitions;
  hec_trace_header *header = &found->header;
  int64_t n_pairs = header->n_layers - 1, n_experts = header->n_experts;
  char text[96], expected[96];
  if (line[TRANSITIONS] == 0 || t->n_pairs < 0 || (t->n_pairs == 0 && n_pairs == 0)) /* null; one layer */
    return HEC_OK;
  int64_t found_experts = t->to_max >= t->n_experts ? t->to_max + 1 : t->n_experts;
  if (t->n_pairs != n_pairs || found_experts != n_experts) {
    (void)snprintf(text, sizeof text, "%" PRId64 " x %" PRId64, t->n_pairs, found_experts);
    (void)snprintf(expected, sizeof expected, "%" PRId64 " x %" PRId64 " (layers but the last x experts)", n_pairs,
                   n_experts);
    return wrong(scan, line, TRANSITIONS, text, expected);
  }
  if (n_pairs > HEC_TRANSITIONS_MAX / (n_experts * n_experts)) {
    (void)snprintf(text, sizeof text, "%" PRId64 " x %" PRId64 " x %" PRId64, n_pairs, n_experts, n_experts);
    (void)snprintf(expected, sizeof expected, "at most %d counts (layers but the last x experts x experts)",
                   HEC_TRANSITIONS_MAX);
    return wrong(scan, line, TRANSITIONS, text, expected);
  }
  const hec_transition *twice;
  header->transitions = HEC_NEW(arena, uint64_t, n_pairs * n_experts * n_experts);
  hec_transitions_spread(t, header->transitions, &twice);
  if (!twice)
    return HEC_OK;
  (void)snprintf(text, sizeof text, "two counts from expert %" PRId32 " to expert %" PRId32 " behind layer %" PRId32,
                 twice->from, twice->to, twice->pair);
  return wrong(scan, line, TRANSITIONS, text, "every expert once in a row");
}

static hec_status check(hec_scan *scan, const int64_t *line, found_header *found) {
  if (!found->format)
    return wrong(scan, line, FORMAT, "no such key", "\"hecate-trace\"");
  static const int required[] = {VERSION, LAYERS, EXPERTS, TOP_K};
  for (size_t i = 0; i < sizeof required / sizeof *required; i++)
    if (line[required[i]] == 0)
      return wrong(scan, line, required[i], "no such key", "this key in the header");
  HEC_TRY(check_layout(scan, line, found));
  HEC_TRY(check_sizes(scan, line, &found->header));
  HEC_TRY(check_phase(scan, line, &found->header));
  if (!found->counted || strcmp(found->counted, "") == 0)
    found->header.counted = HEC_COUNTED_UNKNOWN;
  else if (strcmp(found->counted, "before_drop") == 0)
    found->header.counted = HEC_COUNTED_BEFORE_DROP;
  else if (strcmp(found->counted, "after_drop") == 0)
    found->header.counted = HEC_COUNTED_AFTER_DROP;
  else
    return wrong_text(scan, line, COUNTED, found->counted, "before_drop or after_drop");
  return HEC_OK;
}

/* One member. *iterations becomes true when its key is "iterations", whose opening bracket is then read too. */
static hec_status scan_member(hec_scan *scan, hec_arena *arena, int64_t line[N_FIELDS], found_header *found,
                              bool *iterations) {
  HEC_TRY(hec_scan_key(scan));
  *iterations = strcmp(scan->key, "iterations") == 0;
  if (*iterations)
    return hec_scan_expect(scan, '[');
  const field *f = find(scan->key);
  if (!f) {
    if (found->n_unknown < KEYS_KEPT)
      hec_name_copy(found->unknown[found->n_unknown++], sizeof found->unknown[0], scan->key);
    return hec_scan_skip(scan);
  }
  if (line[f - fields] != 0)
    return hec_scan_fail(scan, "a second one", "this key once");
  line[f - fields] = scan->line;
  HEC_TRY(scan_value(scan, arena, f, found));
  if (f == &fields[FORMAT] && (!found->format || strcmp(found->format, "hecate-trace") != 0))
    return wrong_text(scan, line, FORMAT, found->format ? found->format : "null", "\"hecate-trace\"");
  return HEC_OK;
}

/* Others' keys are welcome, but one that looks like a known one which is absent may be meant as that. */
static char *find_misspelt(hec_arena *arena, const int64_t line[N_FIELDS], const found_header *found) {
  const char *absent[N_FIELDS];
  size_t n = 0;
  char words[128] = "";
  for (int i = 0; i < N_FIELDS; i++)
    if (line[i] == 0)
      absent[n++] = fields[i].key;
  for (int i = found->n_unknown - 1; i >= 0; i--) {
    const char *nearest = hec_nearest(found->unknown[i], absent, n);
    if (nearest)
      (void)snprintf(words, sizeof words, "\"%s\" (nearest known key: %s)", found->unknown[i], nearest);
  }
  hec_make_plain(words);
  return hec_arena_text(arena, words);
}

/* Texts that are absent read as "". `false` and `null` are no claim of being synthetic. */
static void fill_gaps(hec_arena *arena, hec_trace_header *header) {
  char **texts[] = {&header->name,  &header->source, &header->license,   &header->model,
                    &header->notes, &header->unit,   &header->phase_text};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!*texts[i])
      *texts[i] = hec_arena_text(arena, "");
  if (header->synthetic && strcmp(header->synthetic, "false") == 0)
    header->synthetic = NULL;
}

static hec_status scan_header(hec_scan *scan, hec_arena *arena, found_header *found, bool *in_object) {
  int64_t line[N_FIELDS] = {0};
  int byte = 0;
  HEC_TRY(hec_scan_peek(scan, &byte));
  if (byte != '{')
    return hec_scan_fail(scan, NULL,
                         "a hecate-trace, which begins with '{' (hecate-trace import makes one of other files)");
  HEC_TRY(hec_scan_expect(scan, '{'));
  bool first = true, more = true;
  *in_object = false;
  while (!*in_object) {
    HEC_TRY(hec_scan_more(scan, '}', &first, &more));
    if (!more)
      break;
    HEC_TRY(scan_member(scan, arena, line, found, in_object));
  }
  fill_gaps(arena, &found->header);
  found->header.misspelt = find_misspelt(arena, line, found);
  HEC_TRY(check(scan, line, found));
  return check_transitions(scan, line, arena, found);
}

hec_status hec_trace_header_scan(hec_scan *scan, hec_arena *arena, hec_trace_header *header, bool *in_object) {
  found_header found = {.transitions = {.n_pairs = -1}, .range = {-1, -1}};
  hec_status status = scan_header(scan, arena, &found, in_object);
  free(found.transitions.entries);
  HEC_TRY(status);
  if (found.header.transitions && found.range[0] >= 0) {
    found.header.transitions_over = true;
    found.header.transitions_first = found.range[0];
    found.header.transitions_last = found.range[1];
  }
  if (found.header.shape && found.header.shape[0] != '{' && found.header.shape[0] != '"')
    return hec_fail(HEC_BAD_INPUT, "%s:%" PRId64 ": shape: expected an object or the name of a preset, found %.32s",
                    scan->source->origin, scan->line, found.header.shape);
  scan->key[0] = 0;
  scan->n_indices = 0;
  *header = found.header;
  return HEC_OK;
}

/* ---- writing ---- */

/* A raw member; line feeds can only be white space between tokens there, and the header is one line. */
static void add_raw(hec_text *text, const char *key, const char *raw) {
  if (!raw)
    return;
  hec_text_printf(text, ",\"%s\":", key);
  size_t from = text->length;
  hec_text_add(text, raw);
  for (size_t i = from; i < text->length; i++)
    if (text->data[i] == '\n' || text->data[i] == '\r')
      text->data[i] = ' ';
}

static void add_optional_text(hec_json_out *json, const char *key, const char *value) {
  if (value && value[0])
    hec_json_string(json, key, value);
}

void hec_trace_header_print(const hec_trace_header *header, hec_text *text) {
  hec_json_out json = hec_json_begin(text, 0);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_TEXT("format", "hecate-trace"), HEC_INT("version", 1));
  add_optional_text(&json, "name", header->name);
  add_optional_text(&json, "source", header->source);
  add_optional_text(&json, "license", header->license);
  add_optional_text(&json, "model", header->model);
  bool forward = header->phase == HEC_PHASE_FORWARD;
  bool written = header->phase_text && header->phase_text[0];
  HEC_JSON(&json,
           HEC_TEXT("phase", written   ? header->phase_text
                             : forward ? "forward"
                                       : "train"),
           HEC_INT("layers", header->n_layers), HEC_INT("experts", header->n_experts), HEC_INT("top_k", header->top_k),
           HEC_INT("source_ranks", header->n_sources),
           HEC_TEXT("layout", header->per_source ? layout_per_source : layout_totals));
  bool unit = header->unit && header->unit[0];
  hec_json_string(&json, "unit", unit ? header->unit : "token-expert assignments");
  if (header->ranks > 0)
    hec_json_int(&json, "ranks", header->ranks);
  if (header->devices_per_node > 0)
    hec_json_int(&json, "devices_per_node", header->devices_per_node);
  if (header->counted != HEC_COUNTED_UNKNOWN)
    hec_json_string(&json, "counted", header->counted == HEC_COUNTED_BEFORE_DROP ? "before_drop" : "after_drop");
  add_optional_text(&json, "notes", header->notes);
  hec_json_close(&json);
  text->length -= 2; /* brace and line feed: members follow that are JSON already */
  add_raw(text, "shape", header->shape);
  add_raw(text, "synthetic", header->synthetic);
  if (header->transitions && header->transitions_over)
    hec_text_printf(text, ",\"transitions_over\":[%" PRId64 ",%" PRId64 "]", header->transitions_first,
                    header->transitions_last);
  if (header->transitions) {
    hec_text_add(text, ",\"transitions\":");
    hec_transitions_print(header->transitions, header->n_layers - 1, header->n_experts, text);
  }
  hec_text_add(text, "}\n");
}
