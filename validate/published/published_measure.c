/* One function per row. "Best rearrangement" is the fastest of FasterMoE, SmartMoE and FlexMoE in that cell, as in the
 * paper. O(cells asked for); the lab keeps them. */
#include "validate/published/published_measure.h"

#include "validate/stats.h"

#include <math.h>

static const char *const rearrangements[] = {"fastermoe", "smartmoe", "flexmoe"};
enum { N_REARRANGEMENTS = sizeof rearrangements / sizeof *rearrangements, BATCHES = 6, SEQUENCE = 2048 };

/* ---- helpers ---- */

static hec_span number(double value) {
  return (hec_span){value, value};
}

/* NAN where nothing is left to compare with. */
static double ratio(double a, double b) {
  return b > 0 ? a / b : NAN;
}

static hec_lab_key plain(hec_setting setting, int32_t model, const char *policy) {
  return (hec_lab_key){
      .setting = setting, .model = model, .policy = policy, .period = HEC_AUTO, .slots = HEC_AUTO, .t = HEC_AUTO};
}

static const hec_lab_cell *cell(hec_lab *lab, hec_setting setting, int32_t model, const char *policy) {
  return hec_lab_get(lab, plain(setting, model, policy));
}

static double seconds(hec_lab *lab, hec_setting setting, int32_t model, const char *policy) {
  return cell(lab, setting, model, policy)->iteration_s;
}

static double best_rearrangement(hec_lab *lab, hec_lab_key key) {
  double best = INFINITY;
  for (int32_t i = 0; i < N_REARRANGEMENTS; i++) {
    key.policy = rearrangements[i];
    double s = hec_lab_get(lab, key)->iteration_s;
    best = s < best ? s : best;
  }
  return best;
}

/* One ratio per model. */
typedef double ratio_of(hec_lab *lab, hec_setting setting, int32_t model);

static double hecate_vs_ep(hec_lab *lab, hec_setting setting, int32_t model) {
  return ratio(seconds(lab, setting, model, "ep"), seconds(lab, setting, model, "hecate-published"));
}
static double hecate_vs_best(hec_lab *lab, hec_setting setting, int32_t model) {
  return ratio(best_rearrangement(lab, plain(setting, model, "ep")), seconds(lab, setting, model, "hecate-published"));
}
static double ep_vs_balanced(hec_lab *lab, hec_setting setting, int32_t model) {
  return ratio(seconds(lab, setting, model, "ep"), seconds(lab, setting, model, "ep-balanced"));
}
static double worst_baseline(hec_lab *lab, hec_setting setting, int32_t model) {
  double worst = 0;
  for (int32_t i = 0; i < N_REARRANGEMENTS; i++) {
    double s = seconds(lab, setting, model, rearrangements[i]);
    worst = s > worst ? s : worst;
  }
  return ratio(worst, seconds(lab, setting, model, "ep"));
}

static int32_t collect(hec_lab *lab, const hec_lab_models *models, hec_setting setting, ratio_of *of, double *out) {
  for (int32_t i = 0; i < models->n; i++)
    out[i] = of(lab, setting, models->model[i]);
  return models->n;
}

static hec_span range_over(hec_lab *lab, const hec_lab_models *models, hec_setting setting, ratio_of *of) {
  double value[HEC_N_PUBLISHED_MODELS];
  int32_t n = collect(lab, models, setting, of, value);
  return (hec_span){hec_least(value, n), hec_most(value, n)};
}

static hec_span geo_over(hec_lab *lab, const hec_lab_models *models, hec_setting setting, ratio_of *of) {
  double value[HEC_N_PUBLISHED_MODELS];
  int32_t n = collect(lab, models, setting, of, value);
  return number(hec_geo_mean(value, n));
}

/* ---- rows: iteration time ---- */

hec_span hec_measure_ep_imbalance(hec_lab *lab, const hec_lab_models *models) {
  double a = range_over(lab, models, HEC_SETTING_A16, ep_vs_balanced).high;
  double b = range_over(lab, models, HEC_SETTING_A32, ep_vs_balanced).high;
  return number(a > b ? a : b);
}

#define OVER_MODELS(name, form, setting, of)                                                                           \
  hec_span hec_measure_##name(hec_lab *lab, const hec_lab_models *models) {                                            \
    return form(lab, models, HEC_SETTING_##setting, of);                                                               \
  }
OVER_MODELS(best_a16, range_over, A16, hecate_vs_best)
OVER_MODELS(best_a32, range_over, A32, hecate_vs_best)
OVER_MODELS(best_b16, range_over, B16, hecate_vs_best)
OVER_MODELS(best_b32, range_over, B32, hecate_vs_best)
OVER_MODELS(ep_a16, geo_over, A16, hecate_vs_ep)
OVER_MODELS(ep_a32, geo_over, A32, hecate_vs_ep)
OVER_MODELS(ep_b16, geo_over, B16, hecate_vs_ep)
OVER_MODELS(ep_b32, geo_over, B32, hecate_vs_ep)

hec_span hec_measure_ep_most(hec_lab *lab, const hec_lab_models *models) {
  double most = 0;
  for (int32_t s = 0; s < HEC_N_SETTINGS; s++) {
    double value = range_over(lab, models, (hec_setting)s, hecate_vs_ep).high;
    most = s != HEC_SETTING_B16 && value > most ? value : most;
  }
  return number(most);
}

hec_span hec_measure_growth(hec_lab *lab, const hec_lab_models *models) {
  return number(ratio(hec_measure_ep_a32(lab, models).low, hec_measure_ep_a16(lab, models).low));
}

hec_span hec_measure_hecate_fastest(hec_lab *lab, const hec_lab_models *models) {
  double least = INFINITY;
  for (int32_t s = 0; s < HEC_N_SETTINGS; s++) {
    double ep = range_over(lab, models, (hec_setting)s, hecate_vs_ep).low;
    double best = range_over(lab, models, (hec_setting)s, hecate_vs_best).low;
    least = ep < least ? ep : least;
    least = best < least ? best : least;
  }
  return number(least);
}

hec_span hec_measure_slower_than_ep(hec_lab *lab, const hec_lab_models *models) {
  return number(range_over(lab, models, HEC_SETTING_B32, worst_baseline).high);
}

/* ---- rows: inside of an iteration ---- */

hec_span hec_measure_a2a(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "ep")->token_s,
                      cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "hecate-published")->token_s));
}

static int32_t layer_ratios(hec_lab *lab, double *out) {
  const hec_lab_cell *ep = cell(lab, HEC_SETTING_B32, HEC_GPT_S, "ep");
  const hec_lab_cell *hecate = cell(lab, HEC_SETTING_B32, HEC_GPT_S, "hecate-published");
  for (int32_t l = 0; l < ep->n_layers; l++)
    out[l] = ratio(ep->layer_s[l], hecate->layer_s[l]);
  return ep->n_layers;
}

hec_span hec_measure_layer_geo(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  double value[HEC_CELL_LAYERS_MAX];
  int32_t n = layer_ratios(lab, value);
  return number(hec_geo_mean(value, n));
}

hec_span hec_measure_layer_range(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  double value[HEC_CELL_LAYERS_MAX];
  int32_t n = layer_ratios(lab, value);
  return (hec_span){hec_least(value, n), hec_most(value, n)};
}

hec_span hec_measure_full_vs_sharding(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(seconds(lab, HEC_SETTING_B32, HEC_GPT_S, "hecate-nomaterialisation"),
                      seconds(lab, HEC_SETTING_B32, HEC_GPT_S, "hecate-published")));
}

hec_span hec_measure_full_vs_materialisation(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  hec_lab_key full = plain(HEC_SETTING_B32, HEC_GPT_S, "hecate-published"), part = full;
  part.policy = "hecate-nosharding";
  full.sweep = part.sweep = true; /* shards must have had the time to change */
  return number(ratio(hec_lab_get(lab, part)->iteration_s, hec_lab_get(lab, full)->iteration_s));
}

hec_span hec_measure_sparse_below(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "flexmoe")->rearrange_s,
                      cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "hecate-published")->sparse_s));
}

/* ---- rows: re-materialisation ---- */

hec_span hec_measure_rm_sparse(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "hecate-rm")->sparse_s,
                      cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "hecate-published")->sparse_s));
}

hec_span hec_measure_rm_vs_best(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(best_rearrangement(lab, plain(HEC_SETTING_B32, HEC_BERT_DEEP, "ep")),
                      seconds(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "hecate-rm")));
}

/* Over batches of 1 to 6 sequences: `against` over hecate-rm, or hecate-rm over hecate. */
static hec_span over_batches(hec_lab *lab, bool against_best) {
  double value[BATCHES];
  for (int32_t b = 0; b < BATCHES; b++) {
    hec_lab_key key = plain(HEC_SETTING_B32, HEC_GPT_S, "hecate-rm");
    key.tokens = (b + 1) * SEQUENCE;
    double rm = hec_lab_get(lab, key)->iteration_s;
    key.policy = "hecate-published";
    value[b] = against_best ? ratio(best_rearrangement(lab, key), rm) : ratio(rm, hec_lab_get(lab, key)->iteration_s);
  }
  return (hec_span){hec_least(value, BATCHES), hec_most(value, BATCHES)};
}

hec_span hec_measure_rm_slow_down(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return over_batches(lab, false);
}
hec_span hec_measure_rm_most(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(over_batches(lab, true).high);
}
hec_span hec_measure_rm_ahead(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(over_batches(lab, true).low);
}

/* Half as many experts again as fit under attention: attention < spAG <= 2 attention, where the exposed time of
 * re-materialisation is (L + 2 (L - 1)) / L times the default's, that is 3 for many layers. */
hec_span hec_measure_rm_three(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  hec_lab_key key = plain(HEC_SETTING_B32, HEC_BERT_DEEP, "hecate-published");
  const hec_lab_cell *own = hec_lab_get(lab, key);
  key.t = own->t_most + (own->t_most + 1) / 2;
  double plain_s = hec_lab_get(lab, key)->sparse_s;
  key.policy = "hecate-rm";
  return number(ratio(hec_lab_get(lab, key)->sparse_s, plain_s));
}

/* ---- rows: memory ---- */

#define MEMORY(name, field, policy_name)                                                                               \
  hec_span hec_measure_##name(hec_lab *lab, const hec_lab_models *models) {                                            \
    (void)models;                                                                                                      \
    return number(ratio(cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, policy_name)->field,                                 \
                        cell(lab, HEC_SETTING_B32, HEC_BERT_DEEP, "ep")->field));                                      \
  }
MEMORY(memory_hecate, state_bytes, "hecate-published")
MEMORY(memory_params, param_bytes, "hecate-published")
MEMORY(memory_rm, state_bytes, "hecate-rm")
MEMORY(memory_flexmoe, state_bytes, "flexmoe")

/* ---- rows: periods ---- */

hec_span hec_measure_reshard(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  static const int32_t period[] = {10, 25, 50, 100};
  double value[4];
  hec_lab_key key = plain(HEC_SETTING_B32, HEC_GPT_S, "hecate-nosharding");
  key.sweep = true;
  double reference = hec_lab_get(lab, key)->iteration_s;
  key.policy = "hecate-published";
  for (int32_t i = 0; i < 4; i++) {
    key.period = period[i];
    value[i] = ratio(reference, hec_lab_get(lab, key)->iteration_s);
  }
  return (hec_span){hec_least(value, 4), hec_most(value, 4)};
}

hec_span hec_measure_reshard_flat(hec_lab *lab, const hec_lab_models *models) {
  hec_span span = hec_measure_reshard(lab, models);
  return number(ratio(span.high, span.low));
}

static const hec_lab_cell *smartmoe(hec_lab *lab, int32_t period) {
  hec_lab_key key = plain(HEC_SETTING_A32, HEC_GPT_S, "smartmoe");
  key.sweep = true;
  key.period = period;
  return hec_lab_get(lab, key);
}
hec_span hec_measure_smartmoe_ordinary(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(smartmoe(lab, 10)->ordinary_s, smartmoe(lab, 25)->ordinary_s));
}
hec_span hec_measure_smartmoe_total(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  return number(ratio(smartmoe(lab, 10)->iteration_s, smartmoe(lab, 25)->iteration_s));
}

/* Two experts of EP per rank and layer; four times as many slots. */
hec_span hec_measure_flexmoe_four(hec_lab *lab, const hec_lab_models *models) {
  (void)models;
  hec_lab_key key = plain(HEC_SETTING_A32, HEC_GPT_S, "flexmoe");
  key.slots = 8;
  return number(ratio(seconds(lab, HEC_SETTING_A32, HEC_GPT_S, "ep"), hec_lab_get(lab, key)->iteration_s));
}
