/* Locals that end with their scope, at every way out of it, a HEC_TRY among them:
 *   HEC_SCOPED(hec_text) words = {0};     hec_text_free(&words), or what HEC_SCOPED_BY names; must take a zeroed one
 *   HEC_OPENED(hec_json) *json = NULL;    what HEC_OPENED_BY names; must take NULL, if it may not be opened
 * What `return` says is computed before. The last one of a scope ends first: one that points into another stands behind
 * it. One that is given away is no such local, nor one on an arena that the same scope rewinds: it would end too late.
 * gcc and clang share this extension of C; systemd and Linux use it, too. */
#pragma once

#define HEC_SCOPED(type) __attribute__((cleanup(type##_free))) type
#define HEC_SCOPED_BY(type, end)                                                                                       \
  static inline void type##_free(type *scoped) {                                                                       \
    end(scoped);                                                                                                       \
  }
#define HEC_OPENED(type) __attribute__((cleanup(type##_close_opened))) type
#define HEC_OPENED_BY(type, close)                                                                                     \
  static inline void type##_close_opened(type **opened) {                                                              \
    close(*opened);                                                                                                    \
  }
