/* The trace reader: every form that must be read, every error with its exact words, cuts at every byte. */
#define ZLIB_CONST
#include "tests/support/test.h"
#include "traces/trace.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define HEAD_KEYS(sources, layout)                                                                                     \
  "\"format\":\"hecate-trace\",\"version\":1,\"layers\":2,\"experts\":3,\"top_k\":2,\"source_ranks\":" #sources        \
  ",\"layout\":\"" layout "\""
#define HEAD "{" HEAD_KEYS(2, "layer x source_rank x expert") "}\n"
#define HEAD_TOTALS "{" HEAD_KEYS(1, "layer x expert") "}\n"
#define RECORD "{\"iter\":1,\"layers\":[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]]]}\n"
#define RECORD_TOTALS "{\"iter\":1,\"layers\":[[1,2,3],[4,5,4294967295]]}\n"

/* Reads all of it; returns the status, the number of records in *n_records and a checksum of the counts. */
static hec_status read_all(const char *bytes, size_t length, int *n_records, uint64_t *sum) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  *n_records = 0;
  *sum = 0;
  hec_status status = hec_trace_open_memory(bytes, length, "t", &reader);
  while (status == HEC_OK) {
    const hec_trace_record *record = NULL;
    status = hec_trace_next(reader, &record);
    if (!record)
      break;
    (*n_records)++;
    int64_t n = (int64_t)record->load.n_layers * record->load.n_sources * record->load.n_experts;
    for (int64_t i = 0; i < n; i++)
      *sum = *sum * 1000003 + record->load.counts[i];
    *sum = *sum * 31 + (uint64_t)record->iter;
  }
  return status;
}

static int count_records(const char *text) {
  int n = 0;
  uint64_t sum = 0;
  hec_status status = read_all(text, strlen(text), &n, &sum);
  ck_assert_msg(status == HEC_OK, "%s\nfor %s", hec_last_error(), text);
  return n;
}

static void refused(const char *text, const char *message) {
  text = hec_test_quoted(text);
  message = hec_test_quoted(message);
  int n = 0;
  uint64_t sum = 0;
  hec_status status = read_all(text, strlen(text), &n, &sum);
  ck_assert_msg(status == HEC_BAD_INPUT, "accepted: %s", text);
  ck_assert_msg(strcmp(hec_last_error(), message) == 0, "message: %s\nwanted:  %s", hec_last_error(), message);
}

HEC_TEST(both_layouts) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  const char text[] = HEAD RECORD;
  ck_ok(hec_trace_open_memory(text, strlen(text), "t", &reader));
  const hec_trace_header *header = hec_trace_header_of(reader);
  ck_assert(header->per_source && header->n_layers == 2 && header->n_experts == 3 && header->n_sources == 2);
  ck_assert(header->top_k == 2 && header->phase == HEC_PHASE_TRAIN && header->counted == HEC_COUNTED_UNKNOWN);
  ck_assert(!header->synthetic && !header->shape && header->ranks == 0 && !header->transitions);
  ck_assert_str_eq(header->name, "");
  ck_ok(hec_trace_next(reader, &record));
  for (uint32_t i = 0; i < 12; i++)
    ck_assert_uint_eq(record->load.counts[i], i + 1);
  ck_assert_int_eq(record->iter, 1);
  ck_assert_int_eq(record->line, 2);
  ck_assert_int_eq(record->micro_batch, -1);
  ck_assert_ptr_null(record->tokens_per_source);
  ck_ok(hec_trace_next(reader, &record));
  ck_assert_ptr_null(record);
  ck_ok(hec_trace_next(reader, &record)); /* the end stays the end */
  ck_assert_ptr_null(record);
  hec_trace_close(reader);
  const char totals[] = HEAD_TOTALS RECORD_TOTALS;
  ck_ok(hec_trace_open_memory(totals, strlen(totals), "t", &reader));
  ck_assert(!hec_trace_header_of(reader)->per_source);
  ck_ok(hec_trace_next(reader, &record));
  ck_assert_uint_eq(record->load.counts[4], 5);
  ck_assert_uint_eq(record->load.counts[5], UINT32_MAX);
}

HEC_TEST(header_and_record_fields) {
  const char text[] =
      "{\"name\":\"n\\u00e9\\ud83d\\ude00\\n\",\"extra\":{\"a\":[1,{\"b\":[null,true,-1.5e+3,\"\\\"]}\"]}]},"
      "\"transitions\":[[[1,0,0],{\"2\":5},{}]],\"transitions_over\":[3,9],\"synthetic\":{ \"seed\" : 7 "
      "},\"shape\":\"gpt-moe-s\",\"ranks\":16,"
      "\"devices_per_node\":8,\"counted\":\"after_drop\",\"phase\":\"prefill+decode\",\"license\":null," HEAD_KEYS(
          2, "layer x source_rank x expert") "}\n"
                                             "{\"layers\":[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]]],\"unknown\":[],"
                                             "\"tokens_per_source\":[7,8],"
                                             "\"micro_batch\":3,\"label\":\"a label\",\"iter\":9007199254740991}";
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  ck_ok(hec_trace_open_memory(text, strlen(text), "t", &reader));
  const hec_trace_header *header = hec_trace_header_of(reader);
  ck_assert_str_eq(header->name, "n\xc3\xa9\xf0\x9f\x98\x80\n");
  ck_assert_str_eq(header->synthetic, "{ \"seed\" : 7 }");
  ck_assert_str_eq(header->shape, "\"gpt-moe-s\"");
  ck_assert(header->ranks == 16 && header->devices_per_node == 8 && header->counted == HEC_COUNTED_AFTER_DROP);
  ck_assert(header->phase == HEC_PHASE_FORWARD && header->transitions && header->transitions_over);
  ck_assert(header->transitions_first == 3 && header->transitions_last == 9);
  static const uint64_t transitions[9] = {1, 0, 0, 0, 0, 5, 0, 0, 0};
  ck_assert(memcmp(header->transitions, transitions, sizeof transitions) == 0);
  ck_assert_str_eq(header->phase_text, "prefill+decode");
  ck_assert_str_eq(header->license, "");
  ck_ok(hec_trace_next(reader, &record));
  ck_assert_int_eq(record->iter, 9007199254740991);
  ck_assert_int_eq(record->micro_batch, 3);
  ck_assert_str_eq(record->label, "a label");
  ck_assert(record->tokens_per_source[0] == 7 && record->tokens_per_source[1] == 8);
}

/* The same records, written in every way that is allowed. */
HEC_TEST(forms_agree) {
  static const char *const forms[] = {
      HEAD RECORD RECORD,
      "\xef\xbb\xbf" HEAD RECORD RECORD,
      HEAD "\n" RECORD "\n \t\n" RECORD "\n\n",
      "{" HEAD_KEYS(2, "layer x source_rank x expert") ",\"iterations\":[" RECORD "," RECORD "]}",
      "{" HEAD_KEYS(2, "layer x source_rank x expert") ",\n \"iterations\" : [\n" RECORD " , " RECORD
                                                       "\n] , \"more\":{\"iterations\":[]}\n}\n\n",
      "{\"format\": \"hecate-trace\", \"version\": 1, \"layers\": 2, \"experts\": 3, \"top_k\": 2, \"source_ranks\": "
      "2}\r\n"
      "{\"iter\": 1, \"layers\": [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]}\r\n"
      "{ \"iter\" : 1 , \"layers\" :[ [[ 1 ,2\t, 3 ],[4,5,6]] ,[[7,8,9],[10,11,12] ] ] } \r\n\r\n",
      "{\"format\":\"hecate-trace\",\"version\":1,\"\\u006cayers\":2,\n\"experts\":3,\"top_k\":2,\"source_ranks\":2,"
      "\"iterations\":[{\"iter\":1,\"layers\":[\n[[1,\n2,3],\r\n[4,5,6]],[[7,8,9],[10,11,12]]]}," RECORD "]}",
  };
  int n = 0;
  uint64_t wanted = 0, sum = 0;
  ck_ok(read_all(forms[0], strlen(forms[0]), &n, &wanted));
  ck_assert_int_eq(n, 2);
  for (size_t i = 1; i < sizeof forms / sizeof *forms; i++) {
    hec_status status = read_all(forms[i], strlen(forms[i]), &n, &sum);
    ck_assert_msg(status == HEC_OK && n == 2 && sum == wanted, "form %zu: %s", i, hec_last_error());
  }
}

HEC_TEST(valid_and_unusual) {
  const char *one = "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":1,\"top_k\":1}\n";
  char text[1024];
  (void)snprintf(text, sizeof text, "%s{\"iter\":0,\"layers\":[[0]]}", one);
  ck_assert_int_eq(count_records(text), 1); /* one expert, no tokens, no line feed at the end */
  (void)snprintf(text, sizeof text, "%s{\"iter\":4,\"layers\":[[4294967295]]}\n{\"iter\":4,\"layers\":[[1]]}", one);
  ck_assert_int_eq(count_records(text), 2); /* micro-batches: one iter, several lines */
  (void)snprintf(text, sizeof text, "%s{\"iter\":4,\"micro_batch\":null,\"label\":null,\"layers\":[[12345678]]}", one);
  ck_assert_int_eq(count_records(text), 1);
}

HEC_TEST(header_errors) {
  refused("", "t:1: expected a hecate-trace, which begins with '{' (hecate-trace import makes one of other files), "
              "found end of file");
  refused("\n\n", "t:3: expected a hecate-trace, which begins with '{' (hecate-trace import makes one of other files), "
                  "found end of file");
  refused(
      "[1]",
      "t:1: expected a hecate-trace, which begins with '{' (hecate-trace import makes one of other files), found '['");
  refused("\177ELF", "t:1: expected a hecate-trace, which begins with '{' (hecate-trace import makes one of other "
                     "files), found byte 0x7f");
  refused("hello", "t:1: expected a hecate-trace, which begins with '{' (hecate-trace import makes one of other "
                   "files), found hello");
  refused("{}", "t:1: format: expected `hecate-trace`, found no such key");
  refused("{`a`:1}", "t:1: format: expected `hecate-trace`, found no such key");
  refused("{`format`:`other`}", "t:1: format: expected `hecate-trace`, found `other`");
  refused("{`format`:3}", "t:1: format: expected a text, found 3");
  refused("{`format`:`hecate-trace`,`version`:2}", "t:1: version: expected 1, found 2");
  refused("{`format`:`hecate-trace`,`layers`:1}", "t:1: version: expected this key in the header, found no such key");
#define H "{\"format\":\"hecate-trace\",\"version\":1,"
  refused(H "`layers`:0}", "t:1: layers: expected a whole number from 1 to 1048576, found 0");
  refused(H "`experts`:0}", "t:1: experts: expected a whole number from 1 to 1048576, found 0");
  refused(H "`source_ranks`:0}", "t:1: source_ranks: expected a whole number from 1 to 1048576, found 0");
  refused(H "`layers`:2.5}", "t:1: layers: expected a whole number from 1 to 1048576, found 2.5");
  refused(H "`layers`:`2`}", "t:1: layers: expected a whole number from 1 to 1048576, found `2`");
  refused(H "`layers`:2,`layers`:2}", "t:1: layers: expected this key once, found a second one");
  refused(H "`layers`:2,\n`experts`:3,\n`top_k`:4,\n`name`:`x`}\n",
          "t:3: top_k: expected at most 3 (the number of experts), found 4");
  refused(H "`layers`:2,`experts`:3}", "t:1: top_k: expected this key in the header, found no such key");
  refused(H "`layers`:1048576,`experts`:1048576,`top_k`:1}",
          "t:1: layers: expected at most 268435456 counts in a record (layers x source_ranks x experts), found 1048576 "
          "x 1 x 1048576");
#define S "\"layers\":1,\"experts\":2,\"top_k\":1,"
  refused(H S "`layout`:`layer x source_rank x expert`}",
          "t:1: source_ranks: expected this key in the header (the layout has source ranks), found no such key");
  refused(H S "`source_ranks`:2,`layout`:`layer x expert`}",
          "t:1: layout: expected `layer x source_rank x expert` (source_ranks is above 1), found `layer x expert`");
  refused(H S "`layout`:`expert`}",
          "t:1: layout: expected `layer x source_rank x expert` or `layer x expert`, found `expert`");
  refused(H S "`phase`:`sleep`}",
          "t:1: phase: expected train, prefill, decode, prefill+decode or forward, found `sleep`");
  refused(H S "`counted`:`later`}", "t:1: counted: expected before_drop or after_drop, found `later`");
  refused(H S "`ranks`:0}", "t:1: ranks: expected a whole number from 1 to 1048576, found 0");
  refused(H S "`shape`:3}", "t:1: shape: expected an object or the name of a preset, found 3");
  refused(H S "`name`:5}", "t:1: name: expected a text, found 5");
  refused(H S "`name`:`a\\u0000`}", "t:1: name: expected text, found \\u0000");
  refused(H S "`name`:`\xff`}", "t:1: name: expected text in UTF-8, found other bytes");
  refused(H S "`name`:`\\ud800x`}", "t:1: name: expected a surrogate pair, found x");
  refused(H S "`iterations`:3}", "t:1: iterations: expected '[', found 3");
  refused("{`format`:`hecate-trace`,`iterations`:[]}",
          "t:1: version: expected this key in the header, found no such key");
  refused(H S "`iterations`:[]}", "t:1: expected at least one record, found none");
  refused(H S "`iterations`:[{`iter`:1,`layers`:[[1,2]]}],`iterations`:[]}",
          "t:1: iterations: expected this key once, found a second one");
  refused(H S "`iterations`:[{`iter`:1,`layers`:[[1,2]]}],`ranks`:2}",
          "t:1: ranks: expected header fields before `iterations`, found it behind them");
  refused(H S "`iterations`:[{`iter`:1,`layers`:[[1,2]]}]}\n{", "t:2: expected end of file, found '{'");
  refused(H S "`x`:0}{", "t:1: expected end of line, found '{'");
  refused(H S "`x`:0}\n\n", "t:3: expected at least one record, found end of file");
}

HEC_TEST(record_errors) {
#define T HEAD_TOTALS
#define COUNT ": expected a whole number from 0 to 4294967295, found "
  refused(T "{`iter`:1,`layers`:[[1,-2,3],[4,5,6]]}", "t:2: layers[0][1]" COUNT "-2");
  refused(T "{`iter`:1,`layers`:[[1,2.0,3],[4,5,6]]}", "t:2: layers[0][1]" COUNT "2.0");
  refused(T "{`iter`:1,`layers`:[[1,2,1e3],[4,5,6]]}", "t:2: layers[0][2]" COUNT "1e3");
  refused(T "{`iter`:1,`layers`:[[4294967296,2,3],[4,5,6]]}", "t:2: layers[0][0]" COUNT "4294967296");
  refused(T "{`iter`:1,`layers`:[[1,2,99999999999999999999999],[4,5,6]]}",
          "t:2: layers[0][2]" COUNT "99999999999999999999999");
  refused(T "{`iter`:1,`layers`:[[1,02,3],[4,5,6]]}", "t:2: layers[0][1]" COUNT "02");
  refused(T "{`iter`:1,`layers`:[[1,`2`,3],[4,5,6]]}", "t:2: layers[0][1]" COUNT "`2`");
  refused(T "{`iter`:1,`layers`:[[1,null,3],[4,5,6]]}", "t:2: layers[0][1]" COUNT "null");
  refused(T "{`iter`:1,`layers`:[[1,NaN,3],[4,5,6]]}", "t:2: layers[0][1]" COUNT "NaN");
  refused(T "{`iter`:1,`layers`:[[1,2,3],[4,[5],6]]}", "t:2: layers[1][1]" COUNT "'['");
  refused(T "{`iter`:1,`layers`:[[1,2],[4,5,6]]}", "t:2: layers[0]: expected 3 counts, found 2");
  refused(T "{`iter`:1,`layers`:[[],[4,5,6]]}", "t:2: layers[0]: expected 3 counts, found 0");
  refused(T "{`iter`:1,`layers`:[[1,2,3],[4,5,6,7,8]]}", "t:2: layers[1]: expected 3 counts, found 5");
  refused(T "{`iter`:1,`layers`:[[1,2,3]]}", "t:2: layers: expected 2 layers, found 1");
  refused(T "{`iter`:1,`layers`:[[1,2,3],[4,5,6],[7,8,9]]}", "t:2: layers: expected 2 layers, found 3");
  refused(T "{`iter`:1,`layers`:[1,2]}", "t:2: layers[0]: expected an array of 3 counts, found 1");
  refused(T "{`iter`:1,`layers`:{}}", "t:2: layers: expected an array of 2 layers, found '{'");
  refused(T "{`iter`:1,`layers`:[[1,2,3,],[4,5,6]]}", "t:2: layers[0]: expected a JSON value, found ']'");
  refused(T "{`iter`:1,`layers`:[[1 2,3],[4,5,6]]}", "t:2: layers[0]: expected ',' or ']', found 2");
  refused(T "{`iter`:1,`layers`:[[,1,2,3],[4,5,6]]}", "t:2: layers[0]: expected a value or ']', found ','");
  refused(T "{`layers`:[[1,2,3],[4,5,6]]}", "t:2: iter: expected this key in every record, found no such key");
  refused(T "{`iter`:1}", "t:2: layers: expected this key in every record, found no such key");
  refused(T "{`iter`:-1}", "t:2: iter: expected a whole number from 0 to 9007199254740991, found -1");
  refused(T "{`iter`:1,`iter`:1}", "t:2: iter: expected this key once, found a second one");
  refused(T "{`iter`:1,`micro_batch`:-1}", "t:2: micro_batch: expected a whole number from 0 to 2147483647, found -1");
  refused(T "{`iter`:1,`label`:7}", "t:2: label: expected a text, found 7");
  refused(T "{`iter`:1,`tokens_per_source`:[1,2]}", "t:2: tokens_per_source: expected 1 token counts, found 2");
  refused(T RECORD_TOTALS "{`iter`:0,`layers`:[[1,2,3],[4,5,6]]}",
          "t:3: iter: expected at least 1 (iterations in order), found 0");
  refused(T "{`iter`:1,`layers`:[[1,2,3],[4,5,6]]} x\n", "t:2: expected end of line, found x");
  refused(T "{`iter`:1,`layers`:[[1,2,3],[4,5,6]]}{}\n", "t:2: expected end of line, found '{'");
  refused(T "{`iter`:1,`layers`:[[1,2,3],\n[4,5,6]]}\n",
          "t:2: layers[1]: expected an array of 3 counts, found end of line");
  refused(T RECORD_TOTALS "[]\n", "t:3: expected '{', found '['");
  refused(T "{iter:1}\n", "t:2: expected a key in quotes, found iter");
  refused(T "{`iter` 1}\n", "t:2: iter: expected ':', found 1");
  refused(T "{`iter`:1,`x`:truth}\n", "t:2: x: expected a JSON value, found truth");
  refused(T "{`iter`:1,`x`:1.}\n", "t:2: x: expected a digit, found '}'");
  refused(T "{`iter`:1,`x`:`a\tb`}\n", "t:2: x: expected the end of a text, found byte 0x09");
  refused(T "{`iter`:1,`x`:`\\q`}\n", "t:2: x: expected an escape character, found q");
  refused(HEAD "{`iter`:1,`layers`:[[[1,2,3]],[[7,8,9],[10,11,12]]]}",
          "t:2: layers[0]: expected 2 source ranks, found 1");
  refused(HEAD "{`iter`:1,`layers`:[[[1,2,3],[4,5,6]],[[7,8,9],[10,11]]]}",
          "t:2: layers[1][1]: expected 3 counts, found 2");
  refused(HEAD "{`iter`:1,`layers`:[[1,2,3],[4,5,6]]}", "t:2: layers[0][0]: expected an array of 3 counts, found 1");
  refused("{" HEAD_KEYS(1, "layer x expert") ",`iterations`:[" RECORD_TOTALS ",{`iter`:1,`layers`:[[1]]}]}",
          "t:2: iterations[1].layers[0]: expected 3 counts, found 1");
}

HEC_TEST(nesting_has_a_limit) {
  char text[4096];
  for (int depth = 64; depth <= 65; depth++) {
    int n = snprintf(text, sizeof text, "%s{\"x\":", HEAD_TOTALS);
    for (int i = 0; i < depth; i++)
      text[n++] = '[';
    for (int i = 0; i < depth; i++)
      text[n++] = ']';
    (void)snprintf(text + n, sizeof text - (size_t)n, ",\"iter\":1,\"layers\":[[1,2,3],[4,5,6]]}");
    if (depth == 64)
      ck_assert_int_eq(count_records(text), 1);
    else
      refused(text, "t:2: x: expected at most 64 levels of nesting, found deeper nesting");
  }
}

HEC_TEST(zero_bytes_are_not_the_end) {
  char text[] = HEAD_TOTALS "{\"iter\":1,\"layers\":[[1,2,3],[4,5,6]]}\n#\n";
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    char kept = text[i];
    text[i] = 0;
    int n = 0;
    uint64_t sum = 0;
    ck_assert_int_eq(read_all(text, length, &n, &sum), HEC_BAD_INPUT);
    text[i] = kept;
  }
}

static size_t pack(const char *bytes, size_t length, unsigned char *packed, size_t capacity) {
  z_stream zlib = {0};
  ck_assert_int_eq(deflateInit2(&zlib, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  zlib.next_in = (const unsigned char *)bytes;
  zlib.avail_in = (uInt)length;
  zlib.next_out = packed;
  zlib.avail_out = (uInt)capacity;
  ck_assert_int_eq(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  size_t n = capacity - zlib.avail_out;
  ck_assert_int_eq(deflateEnd(&zlib), Z_OK);
  return n;
}

/* A cut text is never a shorter trace, except between two lines (then the rest is complete). */
HEC_TEST(cut_at_every_byte) {
  static const char lines[] = HEAD RECORD RECORD;
  static const char object[] =
      "{" HEAD_KEYS(2, "layer x source_rank x expert") ",\"iterations\":[" RECORD "," RECORD "],\"x\":1}\n";
  int n = 0;
  uint64_t sum = 0;
  for (size_t cut = 0; cut < sizeof lines - 1; cut++) {
    bool complete = cut >= strlen(HEAD RECORD) - 1 && (cut == strlen(HEAD RECORD) - 1 || cut == strlen(HEAD RECORD) ||
                                                       cut == strlen(HEAD RECORD RECORD) - 1);
    hec_status status = read_all(lines, cut, &n, &sum);
    ck_assert_msg(status == (complete ? HEC_OK : HEC_BAD_INPUT), "lines cut at %zu: %s", cut, hec_last_error());
    ck_assert_msg(complete || strstr(hec_last_error(), "t:") == hec_last_error(), "%s", hec_last_error());
  }
  for (size_t cut = 0; cut < sizeof object - 2; cut++)
    ck_assert_msg(read_all(object, cut, &n, &sum) == HEC_BAD_INPUT, "object cut at %zu", cut);
  ck_ok(read_all(object, sizeof object - 2, &n, &sum));
  unsigned char packed[1024];
  size_t length = pack(lines, sizeof lines - 1, packed, sizeof packed);
  ck_ok(read_all((const char *)packed, length, &n, &sum));
  for (size_t cut = 0; cut < length; cut++)
    ck_assert_msg(read_all((const char *)packed, cut, &n, &sum) == HEC_BAD_INPUT, "gzip cut at %zu", cut);
  ck_assert_int_eq(read_all((const char *)packed, length - 3, &n, &sum), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "t: expected more gzip data, found the end of the file (truncated)");
}

HEC_TEST(gzip_forms) {
  static const char lines[] = HEAD RECORD RECORD;
  unsigned char packed[2048];
  int n = 0;
  uint64_t wanted = 0, sum = 0;
  ck_ok(read_all(lines, sizeof lines - 1, &n, &wanted));
  for (size_t cut = 0; cut < sizeof lines; cut++) { /* two members, cut anywhere, even inside a number */
    size_t length = pack(lines, cut, packed, sizeof packed);
    length += pack(lines + cut, sizeof lines - 1 - cut, packed + length, sizeof packed - length);
    ck_ok(read_all((const char *)packed, length, &n, &sum));
    ck_assert(n == 2 && sum == wanted);
  }
  size_t length = pack(lines, sizeof lines - 1, packed, sizeof packed);
  memset(packed + length, 0, 600); /* tape padding */
  ck_ok(read_all((const char *)packed, length + 600, &n, &sum));
  ck_assert(n == 2 && sum == wanted);
  packed[length] = 'x';
  ck_assert_int_eq(read_all((const char *)packed, length + 1, &n, &sum), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "t: expected the end or another gzip member, found byte 0x78");
  int n_noticed = 0;
  for (size_t i = 10; i < length; i++) { /* damage is found by the data, the checksum or the length */
    packed[i] ^= 0x10;
    hec_status status = read_all((const char *)packed, length, &n, &sum);
    n_noticed += status == HEC_BAD_INPUT;
    ck_assert(status == HEC_BAD_INPUT || (n == 2 && sum == wanted)); /* a bit between blocks means nothing */
    packed[i] ^= 0x10;
  }
  ck_assert_int_ge(n_noticed, (int)length - 12);
}

/* One record of more than a megabyte, at every phase of the window: numbers, white space and texts cross its edges. */
HEC_TEST(records_longer_than_the_window) {
  enum { EXPERTS = 1 << 17 };
  HEC_SCOPED(hec_text) text = {0};
  for (int shift = 0; shift < 40; shift += 3) {
    text.length = 0;
    hec_text_printf(
        &text,
        "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":%d,\"top_k\":1,\"x\":\"%*s\"}\n"
        "{\"iter\":1,\"label\":\"%0*d\",\"layers\":[[",
        EXPERTS, shift, "", 300000, 0);
    uint64_t random = 11;
    for (int i = 0; i < EXPERTS; i++) {
      uint32_t value = (uint32_t)(hec_test_random(&random) >> (32 + hec_test_below(&random, 32)));
      hec_text_printf(&text, i == 0 ? "%u" : i % 97 == 0 ? ",\t%u" : i % 3 == 0 ? ", %u" : ",%u", value);
    }
    hec_text_add(&text, "]]}\n");
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    const hec_trace_record *record = NULL;
    ck_ok(hec_trace_open_memory(text.data, text.length, "t", &reader));
    ck_ok(hec_trace_next(reader, &record));
    ck_assert_uint_eq(strlen(record->label), 127);
    random = 11;
    for (int i = 0; i < EXPERTS; i++) {
      uint32_t value = (uint32_t)(hec_test_random(&random) >> (32 + hec_test_below(&random, 32)));
      ck_assert_uint_eq(record->load.counts[i], value);
    }
    ck_ok(hec_trace_next(reader, &record));
    ck_assert_ptr_null(record);
  }
}

HEC_TEST(errors_stay_and_rewind_heals) {
  static const char text[] = HEAD_TOTALS RECORD_TOTALS "{\"iter\":0}\n";
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record = NULL;
  ck_ok(hec_trace_open_memory(text, strlen(text), "t", &reader));
  for (int round = 0; round < 3; round++) {
    ck_ok(hec_trace_next(reader, &record));
    ck_assert_ptr_nonnull(record);
    for (int again = 0; again < 2; again++) {
      ck_assert_int_eq(hec_trace_next(reader, &record), HEC_BAD_INPUT);
      ck_assert_ptr_null(record);
      ck_assert_str_eq(hec_last_error(), "t:3: iter: expected at least 1 (iterations in order), found 0");
    }
    ck_ok(hec_trace_rewind(reader));
  }
}

/* Two readers of one trace do not disturb each other, in memory and in a file. */
HEC_TEST(opened_again) {
  static const char text[] =
      "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":1,\"top_k\":1,"
      "\"layout\":\"layer x expert\"}\n{\"iter\":1,\"layers\":[[3]]}\n{\"iter\":2,\"layers\":[[4]]}\n";
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/hecate-again-%d.jsonl", (int)getpid());
  FILE *file = fopen(path, "w");
  ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
  for (int in_file = 0; in_file < 2; in_file++) {
    hec_trace_reader *reader, *again;
    const hec_trace_record *record, *other;
    ck_ok(in_file ? hec_trace_open(path, &reader) : hec_trace_open_memory(text, strlen(text), "t", &reader));
    ck_ok(hec_trace_next(reader, &record));
    ck_ok(hec_trace_open_again(reader, &again));
    ck_assert_str_eq(hec_trace_origin(again), hec_trace_origin(reader));
    ck_ok(hec_trace_next(reader, &record));
    ck_ok(hec_trace_next(again, &other));
    ck_assert_uint_eq(record->load.counts[0], 4);
    ck_assert_uint_eq(other->load.counts[0], 3);
    hec_trace_close(reader);
    ck_ok(hec_trace_next(again, &other));
    ck_assert_uint_eq(other->load.counts[0], 4);
    hec_trace_close(again);
  }
  ck_assert_int_eq(remove(path), 0);
}

HEC_TEST(files_that_are_none) {
  hec_trace_reader *reader = NULL;
  ck_assert_int_eq(hec_trace_open("/nonexistent/trace", &reader), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "/nonexistent/trace: cannot be opened: No such file or directory");
  ck_assert_ptr_null(reader);
  ck_assert_int_eq(hec_trace_open("/", &reader), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "/: expected a trace file, found a directory");
  ck_assert_int_eq(hec_trace_open("/dev/null", &reader), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "/dev/null:1: expected a hecate-trace, which begins with '{' (hecate-trace import "
                                     "makes one of other files), found end of file");
}

/* Random bytes put into a good trace: never a crash, never anything but OK or one message. */
HEC_TEST(damage_is_survived) {
  static const char good[] = HEAD RECORD RECORD "{\"iter\":2,\"x\":[{\"a\":\"\\u00e9\"},1e-5,null]}\n";
  char text[sizeof good];
  uint64_t random = 3;
  static const char likely[] = "{}[],:\"\\0123456789-+.eE \n\rtfnu";
  for (int i = 0; i < 20000; i++) {
    memcpy(text, good, sizeof good);
    for (uint64_t k = 1 + hec_test_below(&random, 3); k > 0; k--)
      text[hec_test_below(&random, sizeof good - 1)] = likely[hec_test_below(&random, sizeof likely - 1)];
    int n = 0;
    uint64_t sum = 0;
    hec_status status = read_all(text, sizeof good - 1, &n, &sum);
    ck_assert(status == HEC_OK || (status == HEC_BAD_INPUT && strstr(hec_last_error(), "expected ")));
  }
}

HEC_TEST(shared_traces_read) {
  static const struct {
    const char *file;
    int layers, experts, top_k, sources, records;
    hec_phase phase;
  } cases[] = {{"gptoss20b_decode_per_sequence", 24, 32, 4, 8, 45, HEC_PHASE_FORWARD},
               {"harmoeny_qwen15_moe_a27b_per_rank", 24, 60, 1, 6, 2, HEC_PHASE_FORWARD},
               {"olmoe_1b_7b_domains", 3, 64, 8, 1, 8, HEC_PHASE_FORWARD},
               {"sglang_deepseek_r1_ep_statistics", 58, 256, 8, 1, 12, HEC_PHASE_FORWARD},
               {"smartmoe_gpt_e32_r16", 24, 32, 2, 16, 60, HEC_PHASE_TRAIN}};
  if (!hec_test_wants("traces.trace_read/shared_traces_read", "traces/smartmoe_gpt_e32_r16.jsonl",
                      "that traces recorded by others are read; those of this project are"))
    return;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[128];
    (void)snprintf(name, sizeof name, "traces/%s.jsonl", cases[i].file);
    HEC_OPENED(hec_trace_reader) *reader = NULL;
    ck_ok(hec_trace_open(hec_test_shared_path(name), &reader));
    const hec_trace_header *h = hec_trace_header_of(reader);
    ck_assert_str_eq(h->name, cases[i].file);
    ck_assert(h->n_layers == cases[i].layers && h->n_experts == cases[i].experts && h->top_k == cases[i].top_k);
    ck_assert(h->n_sources == cases[i].sources && h->phase == cases[i].phase && !h->synthetic);
    for (int round = 0; round < 2; round++) {
      const hec_trace_record *record = NULL;
      int n = 0;
      for (;; n++) {
        ck_ok(hec_trace_next(reader, &record));
        if (!record)
          break;
        if (i == 4) /* its notes: every (layer, rank) row sums to 4096 */
          for (int row = 0; row < 24 * 16; row++) {
            uint64_t sum = 0;
            for (int e = 0; e < 32; e++)
              sum += record->load.counts[row * 32 + e];
            ck_assert_uint_eq(sum, 4096);
          }
      }
      ck_assert_int_eq(n, cases[i].records);
      ck_ok(hec_trace_rewind(reader));
    }
  }
  hec_trace_reader *reader = NULL;
  ck_refused(hec_trace_open(hec_test_shared_path("traces/gptoss20b_transitions.json"), &reader),
             "format: expected \"hecate-trace\", found no such key");
}
