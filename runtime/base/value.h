/* What a document says, as data: values with a key for programs and a form for people. Reports are made of them
 * (validate/doc.h), and members of JSON objects:
 *
 *     HEC_JSON(json, HEC_INT("ranks", 8), HEC_OBJECT("step_s", HEC_REAL("median", 0.5), HEC_REAL("p95", 0.7))) */
#pragma once
#include "runtime/base/text.h"

/* How people see a value. */
typedef enum {
  HEC_NOT,     /* not at all */
  HEC_AS_IS,   /* texts and whole numbers */
  HEC_FIXED2,  /* 0.12 */
  HEC_FIXED,   /* 0.123 */
  HEC_MS,      /* seconds as milliseconds: 1.234 */
  HEC_MS1,     /* 1.2 */
  HEC_SECONDS, /* with the unit that fits: 1.234 us */
  HEC_PERCENT, /* 0.123: 12.3 % */
  HEC_SIGNED,  /* +12.3 % */
  HEC_SIGNED2  /* +12.34 % */
} hec_value_form;

typedef enum {
  HEC_VALUE_TEXT,
  HEC_VALUE_INT,
  HEC_VALUE_BOOL,
  HEC_VALUE_REAL,
  HEC_VALUE_REALS,
  HEC_VALUE_TEXTS,
  HEC_VALUE_LIST,
  HEC_VALUE_OBJECT
} hec_value_kind;

typedef struct hec_value {
  const char *key; /* NULL: for people alone; lists have values without keys */
  hec_value_form form;
  hec_value_kind kind;
  const char *text; /* NULL: null, or an empty cell */
  int64_t whole;
  double real[2];   /* not finite: null, or `missing` */
  const void *many; /* [n] double, const char *, hec_value */
  int32_t n;
} hec_value;

static inline hec_value hec_value_text(const char *key, hec_value_form form, const char *text) {
  return (hec_value){.key = key, .form = form, .kind = HEC_VALUE_TEXT, .text = text};
}
static inline hec_value hec_value_int(const char *key, hec_value_form form, int64_t whole) {
  return (hec_value){.key = key, .form = form, .kind = HEC_VALUE_INT, .whole = whole};
}
static inline hec_value hec_value_bool(const char *key, hec_value_form form, bool yes) {
  return (hec_value){.key = key, .form = form, .kind = HEC_VALUE_BOOL, .whole = yes};
}
static inline hec_value hec_value_real(const char *key, hec_value_form form, double real) {
  return (hec_value){.key = key, .form = form, .kind = HEC_VALUE_REAL, .real = {real}};
}
/* For programs: two numbers. */
static inline hec_value hec_value_pair(const char *key, double first, double second) {
  return (hec_value){.key = key, .kind = HEC_VALUE_REALS, .real = {first, second}, .n = 2};
}
static inline hec_value hec_value_reals(const char *key, const double *reals, int32_t n) {
  return (hec_value){.key = key, .kind = HEC_VALUE_REALS, .many = reals, .n = n};
}
static inline hec_value hec_value_texts(const char *key, const char *const *texts, int32_t n) {
  return (hec_value){.key = key, .kind = HEC_VALUE_TEXTS, .many = texts, .n = n};
}
static inline hec_value hec_value_list(const char *key, const hec_value *values, int32_t n) {
  return (hec_value){.key = key, .kind = HEC_VALUE_LIST, .many = values, .n = n};
}
static inline hec_value hec_value_object(const char *key, const hec_value *members, int32_t n) {
  return (hec_value){.key = key, .kind = HEC_VALUE_OBJECT, .many = members, .n = n};
}

/* Of the type that it has. A comparison is an int in C: say (bool). */
#define HEC_SHOW(k, form, value)                                                                                       \
  _Generic((value),                                                                                                    \
      bool: hec_value_bool,                                                                                            \
      int32_t: hec_value_int,                                                                                          \
      int64_t: hec_value_int,                                                                                          \
      double: hec_value_real,                                                                                          \
      char *: hec_value_text,                                                                                          \
      const char *: hec_value_text)(k, form, value)
#define HEC_KEEP(k, value) HEC_SHOW(k, HEC_NOT, value)
#define HEC_CELL(text) hec_value_text(NULL, HEC_AS_IS, text)
#define HEC_VALUES(...) ((const hec_value[]){__VA_ARGS__})
#define HEC_N_VALUES(...) ((int32_t)(sizeof HEC_VALUES(__VA_ARGS__) / sizeof(hec_value)))
#define HEC_OBJECT(k, ...) hec_value_object(k, HEC_VALUES(__VA_ARGS__), HEC_N_VALUES(__VA_ARGS__))

/* For programs alone, of the type that is named. */
#define HEC_INT(k, value) hec_value_int(k, HEC_NOT, value)
#define HEC_REAL(k, value) hec_value_real(k, HEC_NOT, value)
#define HEC_BOOL(k, value) hec_value_bool(k, HEC_NOT, value)
#define HEC_TEXT(k, value) hec_value_text(k, HEC_NOT, value)
#define HEC_LIST(k, ...) hec_value_list(k, HEC_VALUES(__VA_ARGS__), HEC_N_VALUES(__VA_ARGS__))

/* Members of the object, or items of the array, that is open. */
void hec_json_add(hec_json_out *json, const hec_value *values, int32_t n);
#define HEC_JSON(json, ...) hec_json_add(json, HEC_VALUES(__VA_ARGS__), HEC_N_VALUES(__VA_ARGS__))
