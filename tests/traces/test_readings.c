/* What an import may not guess: the meaning of axes, whether numbers are ids or counts, the phase, who wrote a file. And that
 * what it leaves out is counted and named. Files are bytes in memory. */
#include "runtime/base/arena.h"
#include "tests/support/test.h"
#include "tests/traces/import_case.h"
#include "traces/import/import.h"

#include <string.h>
#include <unistd.h>

typedef struct {
  const char *format, *path, *bytes;
  size_t length; /* 0: of the text */
  hec_import_options options;
  const char *error;  /* words of the message; NULL: it is read */
  const char *notes;  /* words of what is said at the end; NULL: none asked for */
  const char *read;   /* the line of what was read; likewise */
  const char *silent; /* words that are not said; likewise */
} reading;

/* One import of one file to its end; its records' counts one behind the other. */
static hec_text run(const reading *quoted, hec_trace_header *header, hec_text *source) {
  reading copy = *quoted, *r = &copy;
  copy.bytes = copy.length > 0 ? copy.bytes : hec_test_quoted(copy.bytes);
  copy.error = copy.error ? hec_test_quoted(copy.error) : NULL;
  copy.notes = copy.notes ? hec_test_quoted(copy.notes) : NULL;
  hec_import_options options = r->options;
  hec_import_input input = {r->path, r->bytes, r->length > 0 ? r->length : strlen(r->bytes), NULL};
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_result result = {.n_files = 0};
  hec_text counts = {0};
  char out[] = "/tmp/hecate-readings-XXXXXX";
  int file = mkstemp(out);
  ck_assert_int_ge(file, 0);
  (void)close(file);
  options.last_step = options.last_step == 0 ? -1 : options.last_step;
  hec_status status = hec_import_begin(hec_importer_find(r->format), &options, &input, 1, &job);
  if (status == HEC_OK)
    status = hec_import_write(job, out, &result);
  if (r->error) {
    ck_assert_msg(status == HEC_BAD_INPUT, "%s: accepted", r->path);
    ck_assert_msg(strstr(hec_last_error(), r->error) != NULL, "\"%s\" does not say \"%s\"", hec_last_error(), r->error);
  } else {
    ck_ok(status);
    if (r->notes)
      ck_assert_msg(strstr(result.notes, r->notes) != NULL, "\"%s\" does not say \"%s\"", result.notes, r->notes);
    if (r->silent)
      ck_assert_msg(strstr(result.notes, r->silent) == NULL, "\"%s\" says \"%s\"", result.notes, r->silent);
    if (r->read)
      ck_assert_str_eq(result.read.data, r->read);
    hec_text_add(source, result.header.source);
    *header = result.header;
    FILE *trace = fopen(out, "r");
    char line[4096] = "";
    for (int n = 0; trace && fgets(line, sizeof line, trace); n++)
      if (n > 0)
        hec_text_add(&counts, line);
    ck_assert(trace && fclose(trace) == 0);
  }
  (void)remove(out);
  hec_text_free(&result.read);
  return counts;
}

static void check(const reading *r, const char *wanted) {
  hec_trace_header header = {0};
  HEC_SCOPED(hec_text) source = {0};
  HEC_SCOPED(hec_text) counts = run(r, &header, &source);
  if (wanted)
    ck_assert_str_eq(counts.data, hec_test_quoted(wanted));
}

/* ---- axes ---- */

/* Bytes of a .npy of |u1 with this shape, whose numbers are `value` of their index. */
static void make_npy(hec_text *file, const char *shape, int n, int (*value)(int i)) {
  hec_test_npy_header(file, "|u1", shape);
  for (int i = 0; i < n; i++)
    hec_text_add_bytes(file, &(char){(char)value(i)}, 1);
}

static int two_of_three(int i) { /* pairs of different experts: (0,1) (1,2) (2,0) */
  return (i / 2 + i % 2) % 3;
}

static int small(int i) {
  return i % 4;
}

typedef struct {
  const char *shape;
  int n;
  int (*value)(int i);
  hec_import_options options;
  const char *error, *notes, *wanted;
  const char *silent; /* what is not said */
} axes_case;

static const axes_case axes_cases[] = {
    /* [4 layers][1024 tokens][2]: not 1,024 layers, and not without a word what it is. */
    {"(4, 1024, 2)", 8192, two_of_three, .options.experts = 6,
     .error = "--axes NAME decides which it is: tokens,layers,top_k (expert ids: 4 tokens, 1024 layers, top-2 experts "
              "each); layers,tokens,top_k (expert ids: 4 layers, 1024 tokens, top-2 experts each)"},
    {"(4, 1024, 2)", 8192, two_of_three, .options.experts = 3, .options.axes = "layers,tokens,top_k",
     .wanted = "{`iter`:0,`layers`:[[683,683,682],[682,683,683],[683,682,683],[683,683,682]]}\n"},
    {"(4, 1024, 2)", 8192, two_of_three, .options.experts = 6, .options.layers = 4,
     .notes = "assumed   axes: layers,tokens,top_k (--axes)"},
    /* What --axes makes unlikely is said, unless --layers confirms it. */
    {"(1024, 4, 2)", 8192, two_of_three, .options.experts = 6, .options.axes = "layers,tokens,top_k",
     .notes = "mind      shape 1024 x 4 x 2 is read as layers,tokens,top_k: 1024 layers of 4 tokens, more layers than "
              "tokens; is --axes right (--layers N says so)?"},
    {"(1, 300, 4)", 1200, small, .options.top_k = 1, .options.axes = "steps,layers,experts",
     .notes = "mind      shape 1 x 300 x 4 is read as steps,layers,experts: 300 layers, more than models have; is"},
    {"(1024, 4, 2)", 8192, two_of_three, .options.experts = 6, .options.axes = "tokens,layers,top_k", .silent = "mind"},
    {"(4, 3, 2)", 24, two_of_three, .options.experts = 6, .options.axes = "layers,tokens,top_k", .options.layers = 4,
     .silent = "mind"},
    {"(6, 48, 512, 8)", 8, small, .options.experts = 8,
     .error = "expected two or three sizes, as (tokens, layers, top_k), found (6, 48, 512, 8); of (steps, layers, "
              "tokens, top_k) save a file a step: for i, a in enumerate(numpy.load(FILE)): numpy.save("},
    {"(8,)", 8, small, .options.experts = 8, .error = "found (8,); counts of one layer are numpy.save(FILE, a[None])"},
    {"(1024, 4, 2)", 8192, two_of_three, .options.experts = 6, .notes = "assumed   axes: tokens,layers,top_k (--axes)"},
    {"(3, 3, 2)", 18, two_of_three, .options.experts = 6,
     .error = "expected axes that are certain, found 3: 3 x 3 x 2"},
    {"(3, 3, 2)", 18, two_of_three, .options.experts = 6, .options.layers = 4,
     .error = "of the sizes that are known (--layers,"},
    {"(3, 3, 2)", 18, two_of_three, .options.experts = 3, .options.axes = "tokens,layers",
     .error = "expected 2 axes (--axes tokens,layers)"},
    /* A table of small counts is not expert ids. */
    {"(3, 4)", 12, small, .options.experts = 4, .error = "layers,experts (counts: 3 layers, 4 experts)"},
    {"(3, 4)", 12, small, .options.top_k = 1, .error = "steps,experts (counts: 3 steps, 4 experts)"},
    {"(3, 4)", 12, small, .options.top_k = 1, .options.axes = "layers,experts",
     .notes = "assumed   phase: train (--phase)", .wanted = "{`iter`:0,`layers`:[[0,1,2,3],[0,1,2,3],[0,1,2,3]]}\n"},
    {"(3, 4)", 12, small, .options.top_k = 1, .options.axes = "steps,experts",
     .wanted = "{`iter`:0,`layers`:[[0,1,2,3]]}\n{`iter`:1,`layers`:[[0,1,2,3]]}\n{`iter`:2,`layers`:[[0,1,2,3]]}\n"},
    {"(2, 2, 4)", 16, small, .options.top_k = 1, .options.axes = "steps,layers,experts",
     .wanted = "{`iter`:0,`layers`:[[0,1,2,3],[0,1,2,3]]}\n{`iter`:1,`layers`:[[0,1,2,3],[0,1,2,3]]}\n"},
    {"(1000, 4, 2)", 8000, small, .options.experts = 2,
     .error = "steps,layers,experts (counts: 1000 steps, 4 layers, 2 experts)"},
    {"(3, 4)", 12, small, .options.experts = 4, .options.axes = "tokens,layers",
     .wanted = "{`iter`:0,`layers`:[[3,0,0,0],[0,3,0,0],[0,0,3,0],[0,0,0,3]]}\n"},
    {"(3, 4)", 12, small, .options.experts = 4, .options.axes = "layers,tokens",
     .wanted = "{`iter`:0,`layers`:[[1,1,1,1],[1,1,1,1],[1,1,1,1]]}\n"},
    {"(6, 2)", 12, two_of_three, .options.experts = 3, .options.axes = "tokens,top_k",
     .wanted = "{`iter`:0,`layers`:[[4,4,4]]}\n"},
};

HEC_TEST_ROWS(axes_are_not_guessed, axes_cases) {
  const axes_case *a = &axes_cases[_i];
  HEC_SCOPED(hec_text) file = {0};
  make_npy(&file, a->shape, a->n, a->value);
  const reading r = {.format = "npy-routed-experts",
                     .path = "d/a.npy",
                     .bytes = file.data,
                     .length = file.length,
                     .options = a->options,
                     .error = a->error,
                     .notes = a->notes,
                     .silent = a->silent};
  check(&r, a->wanted);
}

/* A header is as NumPy writes it, or refused: junk in it may be a damaged size. */
HEC_TEST(headers_are_strict) {
  static const char *const headers[] = {"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), }",
                                        "{\"shape\": (1,2),\"descr\":\"|u1\",\"fortran_order\":False}   ",
                                        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), } x",
                                        "{'descr': '|u1', 'fortran_order': False, 'shape': (1 2), }",
                                        "{'descr': '|u1',x'fortran_order': False, 'shape': (1, 2), }",
                                        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), 'shape': (2, 1), }",
                                        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), 'more': 1}",
                                        "{'descr': '|u1' 'fortran_order': False, 'shape': (1, 2)}",
                                        "{'descr': '|u1', 'fortran_order': Falsey, 'shape': (1, 2)}",
                                        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2)",
                                        "'descr': '|u1', 'fortran_order': False, 'shape': (1, 2)}"};
  for (int i = 0; i < (int)(sizeof headers / sizeof *headers); i++) {
    HEC_SCOPED(hec_text) file = {0};
    hec_text_add_bytes(&file, "\x93NUMPY\1\0", 8);
    char length[2] = {(char)strlen(headers[i]), 0};
    hec_text_add_bytes(&file, length, 2);
    hec_text_add(&file, headers[i]);
    hec_text_add_bytes(&file, "\1\0", 2);
    const reading r = {.format = "npy-routed-experts",
                       .path = "d/a.npy",
                       .bytes = file.data,
                       .length = file.length,
                       .options = {.experts = 3, .axes = "tokens,top_k"},
                       .error = i < 2 ? NULL : "d/a.npy: "};
    check(&r, i < 2 ? "{\"iter\":0,\"layers\":[[1,1,0]]}\n" : NULL);
  }
}

/* ---- the rest ---- */

#define RECORD                                                                                                         \
  "\"stage\":\"pre_dispatch\",\"block\":\"decoder\",\"rank\":0,\"num_tokens\":1,\"topk\":2,\"top_indices\":[[0,1]]"
/* |u1 [1][1][2]: experts 0 and 1 */
#define NPY_1                                                                                                          \
  "k05VTVBZAQB2AHsnZGVzY3InOiAnfHUxJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEsIDEsIDIpLCB9"                   \
  "ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAQ=="
#define COUNTS "step,layer,expert,count\n0,0,0,3\n0,0,1,4\n"

static const reading readings[] = {
    /* An array of arrays may be anything. */
    {"eplb-json", "a.json", "[[1,2],[3,4]]", .options.top_k = 1,
     .error = "--axes NAME decides which it is: tokens,layers (expert ids); layers,tokens (expert ids); tokens,top_k "
              "(expert ids); layers,experts (counts); steps,experts (counts)"},
    {"eplb-json", "a.json", "[[[1,2],[3,4]]]", .options.top_k = 1, .error = "--axes NAME decides which it is: "},
    {"eplb-json", "a.json", "[[1,2],[3,4]]", .options.top_k = 1, .options.axes = "steps,experts",
     .read = "2 rows of counts (per layer and source) in 2 steps; left out: nothing"},
    {"eplb-json", "a.json", "[[1,2],[3,4]]", .options.top_k = 1, .options.axes = "layers,experts",
     .read = "2 rows of counts (per layer and source) in 1 step; left out: nothing"},
    {"eplb-json", "a.json", "[[[1,2],[3,4]]]", .options.top_k = 1, .options.axes = "steps,layers,experts",
     .read = "2 rows of counts (per layer and source) in 1 step; left out: nothing"},
    {"eplb-json", "a.json", "[[1,2],[3,4]]", .options.top_k = 1, .options.axes = "tokens,layers",
     .error = "expected --axes of counts"},
    {"eplb-json", "a.json", "{`logical_count`:[[1,2],[3,4]],`logical_counts`:[[1,2]]}", .options.top_k = 1,
     .notes = "left out  key `logical_counts` (1, nearest known name: logical_count)",
     .read = "2 rows of counts (per layer and source) in 1 step; left out: 1 key"},
    {"csv-counts", "a.csv", COUNTS, .options.top_k = 1, .options.axes = "layers,experts",
     .error = "--axes: expected a format with bare tables"},
    {"eplb-json", "a.json", "[[1,2],[3,4]]", .options.top_k = 1, .options.axes = "layers,expert",
     .error = "--axes: expected one of"},
    /* Keys that nobody knows are counted, and may be slips. */
    {"megatron-router-trace", "a.jsonl",
     "{`step`:0,`layer`:1,`mtp_indx`:3," RECORD "}\n{`step`:1,`layer`:1,`mtp_indx`:3,`hs`:[1]," RECORD "}\n",
     .options.experts = 4, .notes = "left out  keys `mtp_indx` (2, nearest known name: mtp_idx), `hs` (1)",
     .read = "2 rows of counts (per layer and source) in 2 steps; left out: 3 keys"},
    {"megatron-router-trace", "a.jsonl", "{`step`:0,`layr`:1," RECORD "}\n", .options.experts = 4,
     .error = "a.jsonl:1: layer: expected this key in every record, found no such key (but `layr`)"},
    /* So are requests of which nothing is known. */
    {"json-routed-experts", "a.jsonl", "{`choices`:[{`routed_experts`:`" NPY_1 "`},{`routed_expert`:`" NPY_1 "`}]}\n",
     .options.experts = 4, .notes = "left out  request with `routed_expert` (1, nearest known name: routed_experts)",
     .read = "1 row of counts (per layer and source) in 1 step; left out: 1 request"},
    {"json-routed-experts", "a.jsonl",
     "{`choices`:[{`routed_experts`:`" NPY_1 "`},{`routed_experts`:null},{`routed_experts`:null}]}\n",
     .options.experts = 4,
     .error = "expected experts of most of them (--gaps takes those that have some), found 1 with and 2 without"},
    {"json-routed-experts", "a.jsonl",
     "{`choices`:[{`routed_experts`:`" NPY_1 "`},{`routed_experts`:null},{`routed_experts`:null}]}\n",
     .options.experts = 4, .options.gaps = true, .notes = "left out  requests with `routed_experts: null` (2)",
     .read = "1 row of counts (per layer and source) in 1 step; left out: 2 requests"},
    {"json-routed-experts", "a.jsonl", "{`routed_expert`:`" NPY_1 "`}\n", .options.experts = 4,
     .error =
         "a.jsonl:1: routed_experts: expected this key in every response, found no such key (but `routed_expert`)"},
    {"json-routed-experts", "a.jsonl", "{`routed_experts`:null}\n", .options.experts = 4, .error = "found null alone"},
    /* Columns that nobody reads; lines of other kinds. */
    {"csv-counts", "a.csv", "stpe,layer,expert,count,note\n0,0,0,3,x\n0,0,1,4,y\n", .options.top_k = 1,
     .notes = "left out  columns `stpe` (1, nearest known name: step), `note` (1)",
     .read = "2 lines in 1 step; left out: 2 columns"},
    {"csv-counts", "a.csv", "method,step,layer,expert,count\nA,0,0,0,3\nA,0,0,1,4\nB,1,0,0,3\nB,1,0,1,4\n",
     .options.top_k = 1, .error = "a.csv:4: method: expected --method, as there are several, found A and B"},
    {"csv-counts", "a.csv", "Method,Step,Layer,Expert,Count\nA,0,0,0,3\nA,0,0,1,4\nB,1,0,0,3\nB,1,0,1,4\n",
     .options.top_k = 1, .options.method = "B", .notes = "left out  lines of `A` (2)",
     .read = "2 lines in 1 step; left out: 2 lines"},
    {"csv-ranks", "a.csv", "Method,rank,layer,iter,tokens\nA,0,0,0,3\nB,0,0,1,4\n", .options.top_k = 1,
     .error = "a.csv:3: Method: expected --method, as there are several, found A and B"},
    {"csv-ranks", "a.csv", "phase,rank,layer,iter,tokens\ntrain,0,0,0,3\ndecode,0,0,1,4\n", .options.top_k = 1,
     .error = "a.csv:3: phase: expected train as before (a trace has one phase), found decode"},
    /* How many experts there are, sparse tables do not say; a line that was lost is not a zero. */
    {"csv-counts", "a.csv", "layer,expert,count\n0,0,3\n0,2,4\n", .options.top_k = 1,
     .error = "a.csv:3: line: expected a line for every expert of every layer in step 0, found 2 for 3, none for layer "
              "0, expert 1: sort the file by "
              "step (--gaps and --experts N: "},
    {"csv-counts", "a.csv", "layer,expert,count\n0,0,3\n0,2,4\n", .options.top_k = 1, .options.experts = 4,
     .error =
         "found 2 for 4, none for layer 0, expert 1: sort the file by step (--gaps: those without one have no tokens)"},
    {"csv-counts", "a.csv", "layer,expert,count\n0,0,3\n0,2,4\n", .options.top_k = 1, .options.experts = 4,
     .options.gaps = true, .notes = "assumed   experts without a line have no tokens",
     .read = "2 lines in 1 step; left out: nothing"},
    {"csv-counts", "a.csv", "layer,expert,count\n3,1,3\n3,0,3\n4,0,2\n", .options.top_k = 1,
     .error = "found 3 for 4, none for layer 4, expert 1: sort"},
    {"csv-ranks", "a.csv", "rank,layer,iter,tokens\n0,0,0,3\n1,0,0,4\n", .options.top_k = 1,
     .read = "2 lines in 1 step; left out: nothing"},
    {"csv-counts", "a.csv", "layer,expert,count\n0,0,3\n0,1,4", .options.top_k = 1,
     .notes = "assumed   the last line of a.csv is whole, though no line end is behind it"},
    {"csv-ranks", "a.csv", "rank,layer,iter,tokens\n0,0,0,3\n1,0,0,4\n", .options.top_k = 1,
     .notes = "assumed   ranks 0 to 1 are all there are (--ranks N checks)"},
    /* Sorted by something else than the step; what tokens cannot have chosen. */
    {"csv-counts", "a.csv", "step,layer,expert,count\n1,0,0,3\n2,0,0,3\n1,0,1,4\n2,0,1,4\n", .options.top_k = 2,
     .error = "a.csv:2: expert: expected 2 experts and more in step 1 (--top-k), found 1: sort the file by step"},
    {"csv-counts", "a.csv", "step,layer,expert,count\n1,0,0,3\n2,0,0,3\n1,1,0,4\n2,1,0,4\n", .options.top_k = 1,
     .error = "a.csv:4: step: expected from 2 to 9007199254740991, found 1: sort the file by step"},
    {"csv-counts", "a.csv", "step,layer,expert,count\n1,0,0,3\n1,0,1,4\n", .options.top_k = 2,
     .notes = "mind      7 assignments of layer 0 in step 1 are no multiple of top-k 2: is --top-k right?"},
    {"csv-counts", "a.csv", "step,layer,expert,count\n1,0,0,7\n1,0,1,1\n", .options.top_k = 2,
     .notes = "mind      expert 0 of layer 0 in step 1 has 7 assignments of 4 tokens, more than one each: are counts"},
    /* What the user chose is counted too. */
    {"csv-counts", "a.csv", COUNTS "1,0,0,3\n1,0,1,4\n2,0,0,3\n2,0,1,4\n", .options.top_k = 1, .options.first_step = 1,
     .options.last_step = 1, .read = "4 lines in 2 steps; left out: 1 step before --from, and all behind --until"},
    {"csv-counts", "a.csv", "step,layer,expert,count\n0,0,0,0\n0,1,0,4\n1,0,0,0\n1,1,0,0\n", .options.top_k = 1,
     .read = "4 lines in 2 steps; left out: 1 layer without tokens, 1 step without tokens"},
};

HEC_TEST_ROWS(what_is_left_out_is_said, readings) {
  check(&readings[_i], NULL);
}

/* ---- phase and source ---- */

typedef struct {
  const char *format, *bytes;
  hec_import_options options;
  const char *phase, *note; /* of the header; "assumed" or NULL: it is known */
} phase_case;

static const phase_case phase_cases[] = {
    {"csv-counts", COUNTS, .options.top_k = 1, .phase = "train", .note = "assumed   phase: train (--phase)"},
    {"csv-counts", COUNTS, .options.top_k = 1, .options.phase = "decode", .phase = "decode"},
    {"csv-counts", "phase,layer,expert,count\nprefill,0,0,3\n", .options.top_k = 1, .phase = "prefill"},
    {"csv-counts", "phase,layer,expert,count\nprefill,0,0,3\ndecode,0,0,2\n", .options.top_k = 1,
     .options.phase = "decode", .phase = "decode"},
    {"csv-ranks", "rank,layer,iter,tokens\n0,0,0,3\n", .options.top_k = 1, .phase = "train",
     .note = "assumed   phase: train (--phase)"},
    {"eplb-json", "{`logical_count`:[[1,2]]}", .options.top_k = 1, .phase = "prefill+decode",
     .note = "assumed   phase: prefill+decode, so hecate-sim simulates the forward pass only (--phase train: backward "
             "too)"},
};

HEC_TEST_ROWS(a_phase_is_known_or_said, phase_cases) {
  const phase_case *p = &phase_cases[_i];
  const reading r = {
      .format = p->format, .path = "d/mine.csv", .bytes = p->bytes, .options = p->options, .notes = p->note};
  hec_import_input input = {r.path, hec_test_quoted(r.bytes), strlen(r.bytes), NULL};
  hec_import_options options = r.options;
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_record record;
  hec_trace_header header;
  bool more = true;
  options.last_step = -1;
  ck_ok(hec_import_begin(hec_importer_find(r.format), &options, &input, 1, &job));
  while (more)
    ck_ok(hec_import_next(job, &record, &more));
  hec_import_header(job, &header);
  ck_assert_str_eq(header.phase_text, p->phase);
  ck_assert_int_eq(header.phase, strcmp(p->phase, "train") == 0 ? HEC_PHASE_TRAIN : HEC_PHASE_FORWARD);
  ck_assert_int_eq(strstr(header.notes, "phase: ") != NULL, p->note != NULL);
  check(&r, NULL);
}

/* A key of a trace's own header that is not quite one: others' keys are welcome, but this one is said. */
HEC_TEST(a_misspelt_key_of_a_trace_is_said) {
  static const struct {
    const char *members, *misspelt;
  } cases[] = {{"\"phaes\":\"decode\"", "\"phaes\" (nearest known key: phase)"},
               {"\"phase\":\"decode\",\"phaes\":1", ""}, /* what it may mean is there */
               {"\"mine\":1,\"source-ranks\":1", "\"source-ranks\" (nearest known key: source_ranks)"},
               {"\"mine\":1", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    HEC_SCOPED(hec_text) text = {0};
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    hec_text_printf(&text,
                    "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":2,\"top_k\":1,%s}\n"
                    "{\"iter\":0,\"layers\":[[1,2]]}\n",
                    cases[i].members);
    ck_ok(hec_trace_open_memory(text.data, text.length, "t", &reader));
    ck_assert_str_eq(hec_trace_header_of(reader)->misspelt, cases[i].misspelt);
  }
}

/* A table of one's own is nobody else's. */
HEC_TEST(a_source_says_what_is_known) {
  const reading r = {.format = "csv-counts", .path = "d/mine.csv", .bytes = COUNTS, .options = {.top_k = 1}};
  hec_trace_header header = {0};
  HEC_SCOPED(hec_text) source = {0};
  hec_text counts = run(&r, &header, &source);
  ck_assert_str_eq(source.data, "a file of the format csv-counts");
  hec_text_free(&counts);
}
