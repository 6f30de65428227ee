/* See utf8.h. Linear in the length of the text. */
#include "runtime/base/utf8.h"

#include <stdbool.h>
#include <string.h>

size_t hec_utf8_length(const char *p) {
  const unsigned char *u = (const unsigned char *)p;
  size_t n = u[0] < 0x80 ? 1 : u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3 : 4;
  if (u[0] > 0xf4 || (n == 4 && u[0] < 0xf0))
    return 0;
  for (size_t i = 1; i < n; i++) /* stops at the terminating zero too */
    if ((u[i] & 0xc0) != 0x80)
      return 0;
  bool bad = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf0 && u[1] < 0x90) ||
             (u[0] == 0xf4 && u[1] > 0x8f);
  return bad ? 0 : n;
}

void hec_make_plain(char *string) {
  for (size_t n; *string; string += n) {
    const unsigned char *u = (const unsigned char *)string;
    n = hec_utf8_length(string);
    bool bad = n == 0 || u[0] < 0x20 || u[0] == 0x7f || (u[0] == 0xc2 && u[1] < 0xa0);
    n = n > 0 ? n : 1;
    if (bad)
      memset(string, '?', n);
  }
}

void hec_name_copy(char *to, size_t size, const char *from) {
  size_t n = strlen(from);
  if (n >= size) {
    n = size - 1;
    for (int i = 0; i < 3 && n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80; i++) /* no character is longer than 4 */
      n--;
  }
  memcpy(to, from, n);
  to[n] = 0;
}
