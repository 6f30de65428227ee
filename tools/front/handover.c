/* The file: per text, its length as size_t, then its bytes. */
#define _GNU_SOURCE /* memfd_create */
#include "tools/front/handover.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static hec_status fail(const char *what) {
  return hec_fail(HEC_FAILED, "results cannot be %s: %s", what, errno ? strerror(errno) : "cut short");
}

hec_status hec_handover_open(hec_handover *handover) {
  handover->file = memfd_create("hecate results", MFD_CLOEXEC);
  return handover->file < 0 ? fail("kept") : HEC_OK;
}

static hec_status write_all(int file, const char *bytes, size_t n) {
  while (n > 0) {
    ssize_t done = write(file, bytes, n);
    if (done < 0 && errno != EINTR)
      return fail("kept");
    n -= done > 0 ? (size_t)done : 0;
    bytes += done > 0 ? done : 0;
  }
  return HEC_OK;
}

static hec_status read_all(int file, char *bytes, size_t n) {
  while (n > 0) {
    errno = 0;
    ssize_t done = read(file, bytes, n);
    if (done == 0 || (done < 0 && errno != EINTR))
      return fail("read back");
    n -= done > 0 ? (size_t)done : 0;
    bytes += done > 0 ? done : 0;
  }
  return HEC_OK;
}

hec_status hec_handover_put(hec_handover *handover, const hec_text *text) {
  HEC_TRY(write_all(handover->file, (const char *)&text->length, sizeof text->length));
  return write_all(handover->file, text->data, text->length);
}

hec_status hec_handover_rewind(hec_handover *handover) {
  return lseek(handover->file, 0, SEEK_SET) == 0 ? HEC_OK : fail("read back");
}

hec_status hec_handover_get(hec_handover *handover, hec_text *text) {
  size_t left;
  HEC_TRY(read_all(handover->file, (char *)&left, sizeof left));
  char bytes[1 << 14];
  hec_text_add(text, "");
  while (left > 0) {
    size_t n = left < sizeof bytes ? left : sizeof bytes;
    HEC_TRY(read_all(handover->file, bytes, n));
    hec_text_add_bytes(text, bytes, n);
    left -= n;
  }
  return HEC_OK;
}

hec_status hec_handover_texts(hec_handover *handover, bool put, hec_text *const *texts, int32_t n) {
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < n; i++) {
    if (status == HEC_OK)
      status = put ? hec_handover_put(handover, texts[i]) : hec_handover_get(handover, texts[i]);
    if (put)
      hec_text_free(texts[i]);
  }
  return status;
}

void hec_handover_close(hec_handover *handover) {
  if (handover->file >= 0)
    (void)close(handover->file);
  handover->file = -1;
}
