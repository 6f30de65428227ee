/* See manifest.h. The file: a line that says what it is, then the lines. Digest: FNV-1a, 64 bits; it tells accidents apart,
 * not attacks: who can write the folder can write the manifest. */
#include "tools/front/manifest.h"

#include "runtime/base/arena.h"
#include "runtime/base/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char head[] = "hecate wrote these files and may replace them: digest, bytes, name";

void hec_manifest_free(hec_manifest *manifest) {
  hec_text_free(&manifest->lines);
}

static uint64_t digest_more(uint64_t digest, const char *data, size_t length) {
  for (size_t i = 0; i < length; i++)
    digest = (digest ^ (unsigned char)data[i]) * UINT64_C(0x100000001b3);
  return digest;
}

static const uint64_t digest_of_nothing = UINT64_C(0xcbf29ce484222325);

static void add_line(hec_text *lines, uint64_t digest, size_t length, const char *name) {
  hec_text_printf(lines, "%s%016" PRIx64 " %zu %s\n", lines->length == 0 ? "\n" : "", digest, length, name);
}

void hec_manifest_add(hec_manifest *manifest, const char *name, const char *data, size_t length) {
  add_line(&manifest->lines, digest_more(digest_of_nothing, data, length), length, name);
}

void hec_manifest_join(hec_manifest *manifest, const hec_manifest *other) {
  if (other->lines.length > 0)
    hec_text_add(&manifest->lines, other->lines.data + (manifest->lines.length > 0));
}

typedef struct {
  const char *text; /* [length] without the line feed */
  size_t length, name_at;
} entry;

/* People may have changed the file: a line without digest and bytes is all name. */
static entry entry_at(const char *at) {
  entry l = {at, strcspn(at, "\n"), 0};
  size_t digest = strcspn(at, " \n"), bytes = digest < l.length ? strcspn(at + digest + 1, " \n") : 0;
  if (digest + 1 + bytes < l.length)
    l.name_at = digest + 1 + bytes + 1;
  return l;
}

static bool is_one_of(const entry *l, const char *const *names, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    if (strlen(names[i]) == l->length - l->name_at && memcmp(names[i], l->text + l->name_at, strlen(names[i])) == 0)
      return true;
  return false;
}

void hec_manifest_join_others(hec_manifest *manifest, const hec_manifest *other, const char *const *names, int32_t n,
                              bool below) {
  const char *all = other->lines.length > 0 ? other->lines.data + 1 : "";
  for (const char *at = all; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    const entry l = entry_at(at);
    if (!is_one_of(&l, names, n) && (below || !memchr(l.text + l.name_at, '/', l.length - l.name_at)))
      hec_text_printf(&manifest->lines, "%s%.*s\n", manifest->lines.length == 0 ? "\n" : "", (int)l.length, l.text);
  }
}

static int compare(const char *a, size_t n_a, const char *b, size_t n_b) {
  int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
  return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_name(const void *a, const void *b) {
  const entry *x = a, *y = b;
  int order = compare(x->text + x->name_at, x->length - x->name_at, y->text + y->name_at, y->length - y->name_at);
  return order != 0 ? order : compare(x->text, x->length, y->text, y->length); /* of two with one name */
}

/* By name: threads add files in any order, and the same run writes the same bytes. */
void hec_manifest_text(const hec_manifest *manifest, hec_text *out) {
  HEC_SCOPED(hec_arena) arena = {0};
  size_t n = 0;
  hec_text_printf(out, "%s\n", head);
  const char *all = manifest->lines.length > 0 ? manifest->lines.data + 1 : "";
  for (const char *at = all; *at; at += strcspn(at, "\n"), at += *at == '\n')
    n++;
  entry *lines = HEC_NEW(&arena, entry, n + 1);
  n = 0;
  for (const char *at = all; *at; at += strcspn(at, "\n"), at += *at == '\n')
    lines[n++] = entry_at(at);
  qsort(lines, n, sizeof *lines, by_name);
  for (size_t i = 0; i < n; i++)
    hec_text_printf(out, "%.*s\n", (int)lines[i].length, lines[i].text);
}

/* False with errno where it cannot be read. */
static bool read_all(FILE *file, hec_text *text) {
  char bytes[1 << 14];
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
    hec_text_add_bytes(text, bytes, n);
  return ferror(file) == 0;
}

hec_status hec_manifest_read(const char *folder, hec_manifest *manifest) {
  HEC_SCOPED(hec_text) path = {0}, text = {0};
  hec_text_printf(&path, "%s/" HEC_MANIFEST_NAME, folder);
  struct stat info;
  bool odd = stat(path.data, &info) == 0 && !S_ISREG(info.st_mode); /* opening a pipe would wait */
  FILE *file = odd ? NULL : hec_file_open(path.data, "rb");
  hec_status status = HEC_OK;
  if (odd)
    status =
        hec_fail(HEC_BAD_INPUT, "%s: expected a file, found something else; name another folder with --out", path.data);
  else if (file ? !read_all(file, &text) : errno != ENOENT)
    status = hec_fail(HEC_BAD_INPUT, "%s: cannot be read: %s", path.data, strerror(errno));
  size_t n = strlen(head);
  bool known = text.length > n && strncmp(text.data, head, n) == 0 && text.data[n] == '\n';
  if (status == HEC_OK && text.length > 0 && !known)
    status =
        hec_fail(HEC_BAD_INPUT,
                 "%s: expected the list of files that hecate wrote, found something else; move it, or name another "
                 "folder with --out",
                 path.data);
  if (known && text.length > n + 1)
    hec_text_add(&manifest->lines, text.data + n);
  if (file)
    (void)fclose(file);
  return status;
}

bool hec_manifest_has(const hec_manifest *manifest, const char *folder, const char *name) {
  HEC_SCOPED(hec_text) path = {0}, line = {0};
  char bytes[1 << 14];
  struct stat info;
  hec_text_printf(&path, "%s/%s", folder, name);
  /* Not behind a link: what that names is not below the folder. */
  FILE *file = manifest->lines.length > 0 && lstat(path.data, &info) == 0 && S_ISREG(info.st_mode)
                   ? hec_file_open(path.data, "rb")
                   : NULL;
  bool has = false;
  if (file) {
    uint64_t digest = digest_of_nothing;
    size_t length = 0;
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0; length += n)
      digest = digest_more(digest, bytes, n);
    add_line(&line, digest, length, name);
    has = ferror(file) == 0 && strstr(manifest->lines.data, line.data);
    (void)fclose(file);
  }
  return has;
}

hec_status hec_manifest_check(const hec_manifest *manifest, const char *folder, const char *name) {
  HEC_SCOPED(hec_text) path = {0};
  struct stat info;
  hec_text_printf(&path, "%s/%s", folder, name);
  hec_status status = HEC_OK;
  if (lstat(path.data, &info) == 0 && !hec_manifest_has(manifest, folder, name))
    status = hec_fail(HEC_BAD_INPUT,
                      "%s: hecate did not write this file, or it was changed since (%s/" HEC_MANIFEST_NAME
                      " lists what may be replaced); move it, or name another folder with --out",
                      path.data, folder);
  return status;
}
