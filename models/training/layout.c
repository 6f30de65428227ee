/* Reading and checking a layout: see layout.h. */
#include "models/training/layout.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *key;
  size_t at;
} sizes[] = {
    {"tp", offsetof(hec_layout, tp)},   {"cp", offsetof(hec_layout, cp)}, {"pp", offsetof(hec_layout, pp)},
    {"vpp", offsetof(hec_layout, vpp)}, {"ep", offsetof(hec_layout, ep)}, {"etp", offsetof(hec_layout, etp)},
};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], PP = 2, SIZE_LIMIT = 1 << 20 };

static int32_t *field(hec_layout *layout, size_t at) {
  return (int32_t *)(void *)((char *)layout + at);
}

/* A whole number from `min` on at *text; moves behind it. False: there is none. */
static bool whole_number(const char **text, int32_t min, int32_t *value) {
  char *end;
  if (!isdigit((unsigned char)**text))
    return false;
  long long read = strtoll(*text, &end, 10);
  if (read < min || read > SIZE_LIMIT)
    return false;
  *text = end;
  *value = (int32_t)read;
  return true;
}

/* ":4,4,4,3" behind pp=4, or ":4x3,3". A part without layers has the embedding or the head alone. */
static hec_status read_layers(const char *whole, const char **text, hec_layout *layout) {
  do {
    int32_t n = 0, times = 1;
    const char *at = ++*text;
    bool reads = whole_number(text, 0, &n);
    if (reads && **text == 'x') {
      ++*text;
      reads = whole_number(text, 1, &times);
    }
    if (!reads || times > HEC_STAGES_MAX - layout->n_given)
      return hec_fail(HEC_BAD_INPUT,
                      "layout \"%s\": expected layers of at most %d virtual stages after pp=N:, found \"%.20s\"", whole,
                      (int)HEC_STAGES_MAX, at);
    for (int32_t i = 0; i < times; i++)
      layout->given[layout->n_given++] = n;
  } while (**text == ',');
  return HEC_OK;
}

static hec_status read_one(const char *whole, const char **text, hec_layout *layout, unsigned *seen) {
  size_t length = strcspn(*text, "= \t");
  for (int i = 0; i < N_SIZES; i++) {
    if (strlen(sizes[i].key) != length || strncmp(sizes[i].key, *text, length) != 0)
      continue;
    if (*seen & 1u << i)
      return hec_fail(HEC_BAD_INPUT, "layout \"%s\": expected %s once, found it twice", whole, sizes[i].key);
    *seen |= 1u << i;
    *text += length + ((*text)[length] == '=');
    const char *at = *text;
    int32_t value = 0;
    if (!whole_number(text, 1, &value) || !strchr(": \t", **text) || (**text == ':' && i != PP))
      return hec_fail(HEC_BAD_INPUT, "layout \"%s\": %s: expected a whole number from 1 on, found \"%.20s\"", whole,
                      sizes[i].key, at);
    *field(layout, sizes[i].at) = value;
    return **text == ':' ? read_layers(whole, text, layout) : HEC_OK;
  }
  return hec_fail(HEC_BAD_INPUT,
                  "layout \"%s\": expected tp, cp, pp, vpp, ep or etp with =N, found \"%.*s\" (dp and edp follow from "
                  "the number of GPUs)",
                  whole, (int)strcspn(*text, " \t"), *text);
}

static hec_status read_text(const char *text, hec_layout *layout) {
  hec_layout read = {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .ep = 1, .etp = 1};
  unsigned seen = 0;
  for (const char *at = text; *(at += strspn(at, " \t"));)
    HEC_TRY(read_one(text, &at, &read, &seen));
  if (read.n_given > 0 && read.n_given != read.pp && read.n_given != (int64_t)read.pp * read.vpp)
    return hec_fail(HEC_BAD_INPUT,
                    "layout \"%s\": expected layers of %d stages, or of pp x vpp virtual stages, found %d numbers",
                    text, (int)read.pp, (int)read.n_given);
  *layout = read;
  return HEC_OK;
}

/* "tp=2 pp=8" for "tp=2,pp=8" and for "TP2 PP8". */
static void respell(const char *text, hec_text *words) {
  for (const char *at = text; *at; at++) {
    char c = (char)tolower((unsigned char)*at);
    bool number = isdigit((unsigned char)c), named = at > text && isalpha((unsigned char)at[-1]) && at[-1] != 'x';
    if (number && named)
      hec_text_add(words, "=");
    bool comma = strchr(",;/", c) && !isdigit((unsigned char)at[1]);
    hec_text_add_bytes(words, comma ? " " : &c, 1);
  }
}

hec_status hec_layout_read(const char *text, hec_layout *layout) {
  HEC_SCOPED(hec_text) words = {0}, message = {0};
  hec_layout meant;
  hec_status status = read_text(text, layout);
  if (status == HEC_OK)
    return status;
  hec_text_add(&message, hec_last_error());
  respell(text, &words);
  if (words.data && strcmp(words.data, text) != 0 && read_text(words.data, &meant) == HEC_OK)
    status = hec_fail(HEC_BAD_INPUT, "%s (did you mean \"%s\"?)", message.data, words.data);
  else
    status = hec_fail(HEC_BAD_INPUT, "%s", message.data);
  return status;
}

/* The nearest divisor of `whole` to `n`, the smaller of two. */
static int32_t divisor_near(int32_t whole, int32_t n) {
  int32_t nearest = 1;
  for (int32_t d = 1; d <= whole; d++)
    if (whole % d == 0 && abs(d - n) < abs(nearest - n))
      nearest = d;
  return nearest;
}

static hec_status wrong(const char *what, int32_t whole, const char *size, int32_t n) {
  return hec_fail(HEC_BAD_INPUT, "layout: %s: expected a divisor of %d, found %d; %s=%d would fit", what, (int)whole,
                  (int)n, size, (int)divisor_near(whole, n));
}

static hec_status check_model(const hec_layout *l, const hec_moe *moe) {
  if (moe->n_experts % l->ep != 0)
    return wrong("ep", moe->n_experts, "ep", l->ep);
  if (moe->n_experts / l->ep > HEC_RANK_EXPERTS_MAX)
    return hec_fail(HEC_BAD_INPUT, "layout: ep=%d: expected at most %d experts of a layer on a rank, found %d",
                    (int)l->ep, (int)HEC_RANK_EXPERTS_MAX, (int)(moe->n_experts / l->ep));
  if (moe->n_heads % l->tp != 0)
    return wrong("tp: heads of attention", moe->n_heads, "tp", l->tp);
  if (moe->d_ffn % l->etp != 0)
    return wrong("etp: inner width of an expert", moe->d_ffn, "etp", l->etp);
  int64_t parts = (int64_t)l->pp * l->vpp;
  if (parts > moe->n_layers + 2 || parts > HEC_STAGES_MAX)
    return hec_fail(
        HEC_BAD_INPUT,
        "layout: pp=%d vpp=%d: expected at most as many virtual stages as the model has layers (%d), found %lld; pp=%d "
        "vpp=1 would fit",
        (int)l->pp, (int)l->vpp, (int)moe->n_layers, (long long)parts,
        (int)(l->pp <= moe->n_layers ? l->pp : moe->n_layers));
  int64_t layers = 0;
  for (int32_t i = 0; i < l->n_given; i++)
    layers += l->given[i];
  if (l->n_given > 0 && (layers != moe->n_layers || l->n_given != parts))
    return hec_fail(HEC_BAD_INPUT, "layout: layers per stage: expected %d in %lld virtual stages, found %lld in %d",
                    (int)moe->n_layers, (long long)parts, (long long)layers, (int)l->n_given);
  return HEC_OK;
}

hec_status hec_layout_fit(hec_layout *l, int32_t gpus, const hec_moe *moe) {
  if (gpus % l->pp != 0)
    return wrong("pp: GPUs", gpus, "pp", l->pp);
  int32_t stage = gpus / l->pp;
  if ((int64_t)l->tp * l->cp > stage || stage % (l->tp * l->cp) != 0)
    return l->cp == 1 ? wrong("tp: GPUs of a stage", stage, "tp", l->tp)
                      : wrong("tp x cp: GPUs of a stage", stage, "tp x cp", l->tp * l->cp);
  if ((int64_t)l->etp * l->ep > stage || stage % (l->etp * l->ep) != 0)
    return l->etp == 1 ? wrong("ep: GPUs of a stage", stage, "ep", l->ep)
                       : wrong("etp x ep: GPUs of a stage", stage, "etp x ep", l->etp * l->ep);
  HEC_TRY(check_model(l, moe));
  l->gpus = gpus;
  l->dp = stage / (l->tp * l->cp);
  l->edp = stage / (l->etp * l->ep);
  return HEC_OK;
}

void hec_layout_write_given(const hec_layout *l, hec_text *text) {
  for (int32_t i = 0, times; i < l->n_given; i += times) {
    for (times = 1; i + times < l->n_given && l->given[i + times] == l->given[i];)
      times++;
    times = times > 2 ? times : 1;
    hec_text_printf(text, "%c%d", i ? ',' : ':', (int)l->given[i]);
    if (times > 1)
      hec_text_printf(text, "x%d", (int)times);
  }
}

void hec_layout_write_sizes(const hec_layout *l, hec_text *text) {
  hec_text_printf(text, "tp=%d cp=%d pp=%d", (int)l->tp, (int)l->cp, (int)l->pp);
  hec_layout_write_given(l, text);
  hec_text_printf(text, " vpp=%d ep=%d etp=%d", (int)l->vpp, (int)l->ep, (int)l->etp);
}

void hec_layout_write(const hec_layout *l, hec_text *text) {
  hec_layout_write_sizes(l, text);
  hec_text_printf(text, " dp=%d edp=%d", (int)l->dp, (int)l->edp);
}

/* Layers before part `part`. Where layers do not divide into parts, embedding and head may be counted as a layer each.
 * That is done where it makes them divide, as in Megatron's recipes (its options account for embedding and loss in the
 * pipeline split). */
static int32_t layers_before(const hec_layout *l, const hec_moe *moe, int32_t part) {
  int32_t parts = l->pp * l->vpp, n = moe->n_layers, before = 0;
  if (l->n_given > 0) {
    for (int32_t i = 0; i < part; i++)
      before += l->given[i];
    return before;
  }
  if (parts > 1 && n % parts != 0 && (n + 2) % parts == 0) {
    before = part * ((n + 2) / parts) - (part > 0);
    return part == parts ? n : before;
  }
  return part * (n / parts) + (part < n % parts ? part : n % parts);
}

int32_t hec_layout_layers(const hec_layout *l, const hec_moe *moe, int32_t part, int32_t *first) {
  *first = layers_before(l, moe, part);
  return layers_before(l, moe, part + 1) - *first;
}
