/* A text file as symbols, and random windows of it. */
#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/exec/train/language.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 30 };

hec_status hec_corpus_make(const char *bytes, size_t n, const char *origin, hec_corpus *corpus) {
  bool there[HEC_SYMBOLS_MAX] = {false};
  uint8_t id[HEC_SYMBOLS_MAX] = {0};
  *corpus = (hec_corpus){0};
  for (size_t i = 0; i < n; i++)
    there[(uint8_t)bytes[i]] = true;
  for (int32_t b = 0; b < HEC_SYMBOLS_MAX; b++)
    if (there[b]) {
      id[b] = (uint8_t)corpus->vocabulary;
      corpus->byte_of[corpus->vocabulary++] = (uint8_t)b;
    }
  if (corpus->vocabulary < 2)
    return hec_fail(HEC_BAD_INPUT, "%s: expected a text of at least two different characters, found %zu bytes", origin,
                    n);
  corpus->ids = hec_malloc(n, 1);
  corpus->n = (int64_t)n;
  for (size_t i = 0; i < n; i++)
    corpus->ids[i] = id[(uint8_t)bytes[i]];
  return HEC_OK;
}

void hec_corpus_free(hec_corpus *corpus) {
  free(corpus->ids);
  *corpus = (hec_corpus){0};
}

hec_status hec_corpus_load(const char *path, hec_corpus *corpus) {
  char *bytes;
  size_t n;
  *corpus = (hec_corpus){0};
  HEC_TRY(hec_file_read(path, "a text", TEXT_BYTES_MAX, &bytes, &n));
  hec_status status = hec_corpus_make(bytes, n, path, corpus);
  free(bytes);
  return status;
}

hec_status hec_corpus_check(const hec_corpus *corpus, const hec_model *model, int32_t tokens) {
  int32_t length = model->moe.seq_len;
  if (tokens < length || tokens % length != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "`tokens`: expected a multiple of the sequence length (%" PRId32 ", `seq_len`), found %" PRId32,
                    length, tokens);
  if (corpus->n < (int64_t)length + 1)
    return hec_fail(HEC_BAD_INPUT,
                    "`text`: expected at least a sequence and the character after it (%" PRId32
                    ", `seq_len`), found %" PRId64 " characters",
                    length + 1, corpus->n);
  return HEC_OK;
}

void hec_corpus_batch(const hec_corpus *corpus, const hec_model *model, hec_corpus_place place, uint8_t *ids,
                      uint8_t *next) {
  int32_t length = model->moe.seq_len, windows = place.tokens / length;
  int64_t first = ((int64_t)place.micro_batch * place.n_ranks + place.rank) * windows;
  for (int32_t w = 0; w < windows; w++) {
    int64_t begin = hec_language_window(model, place.step, first + w, corpus->n - length);
    memcpy(ids + (int64_t)w * length, corpus->ids + begin, (size_t)length);
    memcpy(next + (int64_t)w * length, corpus->ids + begin + 1, (size_t)length);
  }
}
