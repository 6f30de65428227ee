/* What carries a recommendation out, a file for each framework. A row of `writers` writes one. It adds to `cannot`
 * what its framework has no setting for, so that nobody unknowingly runs something else than was predicted. Versions
 * and sources:
 *
 *   Megatron-LM   Megatron Core 0.16: megatron_flags.h
 *   torchtitan    0.2.2, the last release with TOML (pull request 2386 made it Python): torchtitan/config/job_config.py
 *   DeepSpeed     0.19, with AutoEP (pull requests 7938 and 8064; docs/_pages/config-json.md)
 *   EPLB          github.com/deepseek-ai/EPLB: physical_to_logical_map (runtime/plan/placement/eplb.c) */
#include "models/training/dispatcher.h"
#include "runtime/base/value.h"
#include "runtime/plan/placement/placement.h"
#include "tools/front/training/megatron_flags.h"
#include "tools/front/training/recommendation_words.h"

#include <string.h>

typedef struct {
  const hec_recommendation *r;
  const hec_training *t; /* what torchtitan and DeepSpeed run: `plain` */
  const hec_policy *policy;
  const char *folder;
  hec_trace_reader *reader;
  hec_arena *arena;
} job;

/* Comments on top of a file: whose it is, and what was predicted. */
static void add_row(const hec_recommendation *r, const hec_recommended *of, hec_text *out) {
  hec_text_add(out, hec_recommended_same(of, &r->rows[0]) ? "# The recommended row: "
                                                          : "# Another row than the recommended one: ");
  hec_choice_words(&of->choice, out);
  hec_text_add(out, ", policy ep.\n# Predicted: ");
  hec_recommended_cost_words(r, of, out);
  hec_text_add(out, hec_recommended_row(of)->result.memory.fits && !hec_recommended_may_not_fit(of) ? ", which fits.\n"
                                                                                                    : ".\n");
}

static hec_status write_megatron(const job *j, hec_text *out, hec_text *cannot) {
  HEC_SCOPED(hec_text) flags = {0};
  hec_recommendation_megatron(j->r, false, &flags, cannot);
  hec_text_add(out, "# Megatron Core 0.16; take them with $(grep -v '^#' megatron.txt)\n");
  add_row(j->r, &j->r->megatron, out);
  if (j->r->megatron_row > 0 && !hec_recommended_same(&j->r->megatron, &j->r->plain))
    hec_text_add(out, "# It is the fastest row that Megatron-LM runs exactly, of the layouts that were simulated.\n");
  if (hec_megatron_environment(flags.data))
    hec_text_printf(out, "# Environment: %s\n", hec_megatron_environment(flags.data));
  for (const char *c = flags.data; *c; c++) /* a flag a line */
    hec_text_add_bytes(out, strncmp(c, " --", 3) == 0 ? "\n" : c, 1);
  hec_text_add(out, "\n");
  return HEC_OK;
}

/* Its own split counts embedding and head as a layer each, so the modules of each stage are listed. */
static void add_pipeline(const job *j, hec_text *out, hec_text *cannot) {
  static const struct {
    const hec_pipeline_schedule *schedule;
    const char *name;
  } names[] = {{&hec_pipeline_1f1b, "1F1B"},
               {&hec_pipeline_interleaved, "Interleaved1F1B"},
               {&hec_pipeline_gpipe, "GPipe"},
               {&hec_pipeline_dualpipev, "DualPipeV"}};
  const hec_training *t = j->t;
  const hec_pipeline_schedule *schedule = hec_recommendation_pipeline(&j->r->plain);
  const char *name = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    name = schedule == names[i].schedule ? names[i].name : name;
  if (!name)
    hec_text_printf(cannot, "it has no schedule %s: 1F1B or Interleaved1F1B is written; ", schedule->name);
  name = name ? name : t->layout.vpp > 1 ? "Interleaved1F1B" : "1F1B";
  hec_text_printf(out, "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %d\n", name,
                  (int)t->micro_batch);
  hec_text_add(out, "module_fqns_per_model_part = [");
  for (int32_t first, p = 0, parts = t->layout.pp * t->layout.vpp; p < parts; p++) {
    int32_t n = hec_layout_layers(&t->layout, t->moe, p, &first);
    hec_text_printf(out, "%s\n  [%s", p ? "," : "", p ? "" : "\"tok_embeddings\"");
    for (int32_t l = first; l < first + n; l++)
      hec_text_printf(out, "%s\"layers.%d\"", p == 0 || l > first ? ", " : "", (int)l);
    hec_text_printf(out, "%s]", p < parts - 1 ? "" : n > 0 ? ", \"norm\", \"output\"" : "\"norm\", \"output\"");
  }
  hec_text_add(out, "\n]\n");
  if (schedule == &hec_pipeline_dualpipev && t->layout.ep > 1 && t->recipe.recompute)
    hec_text_add(cannot, "it refuses recomputation beside ep and DualPipeV; "); /* pull request 1721 */
  if (t->mtp > 0)
    hec_text_add(cannot, "multi-token prediction is not in it; ");
}

static hec_status write_torchtitan(const job *j, hec_text *out, hec_text *cannot) {
  const hec_training *t = j->t;
  const hec_layout *l = &t->layout;
  const hec_recipe *recipe = &t->recipe;
  int32_t local = t->micro_batch * (l->pp > 1 ? hec_training_micro_batches(t) : 1);
  hec_text_add(out, "# torchtitan 0.2.2; put these into your own TOML, over its values\n");
  add_row(j->r, &j->r->plain, out);
  hec_text_printf(out,
                  "[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n\n[parallelism]\n"
                  "data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = %d\n"
                  "fsdp_reshard_after_forward = \"%s\"\ntensor_parallel_degree = %d\ncontext_parallel_degree = %d\n"
                  "pipeline_parallel_degree = %d\n",
                  (int)local, (int)t->global_batch, (int)t->seq, (int)l->dp, recipe->zero >= 3 ? "always" : "never",
                  (int)l->tp, (int)l->cp, (int)l->pp);
  if (l->pp > 1)
    add_pipeline(j, out, cannot);
  hec_text_printf(out,
                  "expert_parallel_degree = %d\nexpert_tensor_parallel_degree = %d\n"
                  "expert_parallel_comm_backend = \"%s\"\n\n[activation_checkpoint]\nmode = \"%s\"\n",
                  (int)l->ep, (int)l->etp, recipe->dispatcher == HEC_DISPATCHER_DEEPEP ? "deepep" : "standard",
                  !recipe->recompute                       ? "none"
                  : recipe->recompute & HEC_RECOMPUTE_FULL ? "full"
                                                           : "selective");
  if (recipe->recompute && !(recipe->recompute & HEC_RECOMPUTE_FULL)) {
    hec_text_add(out, "selective_ac_option = \"op\"\n");
    hec_text_add(cannot, "its selective recomputation chooses operations by itself; ");
  }
  if (recipe->grads != 4)
    hec_text_add(cannot, "it reduces gradients in fp32, where bf16 was predicted; ");
  if (recipe->zero < 3)
    hec_text_printf(cannot, "it always shards parameters (FSDP2), where ZeRO %d was predicted; ", (int)recipe->zero);
  if (l->etp != 1 && l->etp != l->tp)
    hec_text_add(cannot, "it takes expert tensor parallelism of 1 or of tp; ");
  if (recipe->dispatcher != HEC_DISPATCHER_DEEPEP && recipe->dispatcher != HEC_DISPATCHER_ALLTOALL)
    hec_text_add(cannot, "it has no such dispatcher: all-to-all is written; ");
  if (recipe->precision != HEC_PRECISION_BF16)
    hec_text_add(cannot, "its converters for fp8 and mxfp8 are not written; ");
  return HEC_OK;
}

static hec_status write_deepspeed(const job *j, hec_text *out, hec_text *cannot) {
  const hec_training *t = j->t;
  const hec_layout *l = &t->layout;
  if (l->pp > 1 || l->cp > 1 || l->etp > 1) {
    hec_text_add(cannot, "no file: AutoEP has no pipeline, context or expert tensor parallelism; ");
    return HEC_OK;
  }
  hec_json_out json = hec_json_begin(out, 2);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("train_batch_size", t->global_batch),
           HEC_INT("train_micro_batch_size_per_gpu", t->micro_batch),
           HEC_INT("gradient_accumulation_steps", hec_training_micro_batches(t)),
           HEC_OBJECT("bf16", HEC_BOOL("enabled", true)));
  bool grads_fp32 = t->recipe.grads == 4 && t->recipe.zero > 0; /* it refuses them without ZeRO */
  const char *grads = grads_fp32 ? "fp32" : "bf16";
  HEC_JSON(&json, HEC_TEXT("communication_data_type", grads),
           HEC_OBJECT("data_types", HEC_TEXT("grad_accum_dtype", grads)),
           HEC_OBJECT("zero_optimization", HEC_INT("stage", t->recipe.zero),
                      HEC_BOOL("overlap_comm", t->recipe.dp_overlap > 0)));
  if (l->tp > 1) {
    hec_json_object(&json, "tensor_parallel");
    hec_json_int(&json, "autotp_size", l->tp);
    hec_json_close(&json);
  }
  if (l->ep > 1) {
    HEC_JSON(&json, HEC_OBJECT("expert_parallel", HEC_BOOL("enabled", true), HEC_INT("autoep_size", l->ep)));
  }
  hec_json_close(&json);
  if (t->recipe.grads == 4 && !grads_fp32)
    hec_text_add(cannot, "without ZeRO it adds up gradients in bf16; ");
  if (t->recipe.dispatcher != HEC_DISPATCHER_ALLTOALL)
    hec_text_add(cannot, "it dispatches by all-to-all; ");
  if (t->recipe.recompute)
    hec_text_add(cannot, "recomputation is set in the model's code; ");
  if (t->recipe.precision != HEC_PRECISION_BF16)
    hec_text_add(cannot, "bf16 is written; ");
  return HEC_OK;
}

/* The policy after the records that the step took, deciding once more. */
static hec_status plan_of(const job *j, hec_policy_run *run) {
  const hec_job *of = &j->r->rows[0].set_up->job;
  const hec_problem *p = &of->problem;
  hec_load load = hec_load_new(j->arena, p->n_layers, p->n_ranks, p->n_experts);
  hec_load_remainder *order = HEC_NEW(j->arena, hec_load_remainder, (size_t)p->n_ranks * (size_t)p->n_experts);
  const hec_training_summary *s = &j->r->rows[0].policies;
  HEC_TRY(hec_trace_rewind(j->reader));
  for (int32_t i = 0; i < s->n_before + s->n_records; i++) {
    const hec_trace_record *record;
    HEC_TRY(hec_trace_next(j->reader, &record));
    if (!record)
      break;
    HEC_TRY(hec_job_load(of, record, &load, order));
    hec_policy_observe(run, &load);
  }
  hec_policy_reshard(run);
  hec_policy_decide(run, 0, 0);
  return HEC_OK;
}

static hec_status write_eplb(const job *j, hec_text *out, hec_text *cannot) {
  hec_placement placement;
  if (!j->policy->rearranges) {
    hec_text_printf(cannot, "no file: policy %s keeps no placement from step to step; ", j->policy->name);
    return HEC_OK;
  }
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(j->policy, &j->r->rows[0].set_up->job.problem, j->arena);
  HEC_SCOPED(hec_text) lost = {0}; /* of the file: said only if there is one */
  hec_status status = plan_of(j, &run);
  if (status == HEC_OK && (hec_placement_of_plan(&run.plan, 0, j->arena, &placement, &lost) != HEC_OK ||
                           hec_placement_write(&hec_placement_eplb, &placement, out, &lost) != HEC_OK)) {
    static const char option[] = "`export` eplb: "; /* of a command that nobody gave */
    const char *why = hec_last_error();
    size_t n = sizeof option - 1;
    out->length = 0;
    hec_text_printf(cannot, "no file: %s; ", why + (strncmp(why, option, n) == 0 ? n : 0));
  } else if (lost.length > 0) {
    hec_text_add(cannot, lost.data);
  }
  return status;
}

static hec_status write_setup(const job *j, hec_text *out, hec_text *cannot) {
  HEC_SCOPED(hec_text) file = {0};
  double factor = j->r->rows[0].policies.factor;
  if (factor != 1)
    hec_text_printf(cannot, "the factor of the measured run: add `--measured \"factor=%.17g\"`; ", factor);
  hec_text_printf(&file, "%s/setup.json", j->folder);
  return hec_recommendation_setup(j->r, file.data, out);
}

static hec_status write_summary(const job *j, hec_text *out, hec_text *cannot) {
  (void)cannot;
  hec_recommendation_json(j->r, out);
  return HEC_OK;
}

enum { GUIDE = HEC_RECOMMENDATION_FILES - 1 };
typedef enum { ALL_ROWS, FIRST_ROW, MEGATRON_ROW, PLAIN_ROW } file_row; /* the row that a file is of */
static const struct {
  const char *of; /* framework and version */
  file_row row;
  hec_status (*write)(const job *j, hec_text *out, hec_text *cannot);
} writers[GUIDE] = {{"hecate: `hecate-sim TRACE --setup setup.json` predicts the same", FIRST_ROW, write_setup},
                    {"Megatron-LM, Megatron Core 0.16", MEGATRON_ROW, write_megatron},
                    {"torchtitan 0.2.2", PLAIN_ROW, write_torchtitan},
                    {"DeepSpeed 0.19, AutoEP", PLAIN_ROW, write_deepspeed},
                    {"EPLB: physical_to_logical_map of each MoE layer of the trace", FIRST_ROW, write_eplb},
                    {"all figures", ALL_ROWS, write_summary}};
const char *const hec_recommendation_files[HEC_RECOMMENDATION_FILES] = {
    "setup.json", "megatron.txt",        "torchtitan.toml",  "deepspeed.json",
    "eplb.json",  "recommendation.json", "what-to-change.md"};

/* Sentences without the separator behind the last. */
static void add_cell(const hec_text *words, hec_text *out) {
  size_t n = words->length;
  while (n > 0 && (words->data[n - 1] == ' ' || words->data[n - 1] == ';'))
    n--;
  for (size_t i = 0; i < n; i++)
    hec_text_add_bytes(out, words->data[i] == '\n' || words->data[i] == '|' ? " " : words->data + i, 1);
}

static const hec_recommended *row_of(const hec_recommendation *r, file_row row) {
  return row == MEGATRON_ROW ? &r->megatron : row == PLAIN_ROW ? &r->plain : &r->rows[0];
}

static void add_runs(const hec_recommendation *r, file_row row, bool written, hec_text *out) {
  const hec_recommended *of = row_of(r, row);
  if (row == ALL_ROWS || !written)
    hec_text_add(out, "-");
  else if (hec_recommended_same(of, &r->rows[0]))
    hec_text_add(out, "the recommended");
  else {
    hec_text_add(out, "another: ");
    hec_choice_words(&of->choice, out);
    hec_text_printf(out, ", policy ep, %.4g s", hec_recommended_s(of));
  }
}

void hec_recommendation_runs(const hec_recommendation *r, hec_text *words) {
  const job j = {.r = r, .t = &r->plain.choice.training};
  int32_t n = 0;
  for (int32_t i = 0; i < GUIDE; i++) {
    HEC_SCOPED(hec_text) text = {0}, cannot = {0};
    if (writers[i].row != MEGATRON_ROW && writers[i].row != PLAIN_ROW)
      continue;
    if (!hec_recommended_same(row_of(r, writers[i].row), &r->rows[0]) ||
        writers[i].write(&j, &text, &cannot) != HEC_OK || cannot.length > 0)
      continue;
    hec_text_printf(words, "%s%s", n++ == 0 ? " Of the frameworks' files, this row is run by " : ", ",
                    hec_recommendation_files[i]);
  }
  const hec_policy *policy = hec_recommended_row(&r->rows[0])->policy;
  if (n > 0)
    hec_text_add(words, " as it is.");
  else if (policy->baseline)
    hec_text_add(words, " No framework's file runs this row exactly; what-to-change.md says why.");
  else
    hec_text_printf(words, " No framework's file runs this row, for policy %s is not a setting of theirs.",
                    policy->name);
}

hec_status hec_recommendation_write(const hec_recommendation *r, const char *folder, hec_trace_reader *reader,
                                    hec_arena *arena, hec_text text[HEC_RECOMMENDATION_FILES]) {
  const hec_recommended *best = &r->rows[0];
  const job j = {.r = r,
                 .t = &r->plain.choice.training,
                 .policy = best->policies.rows[best->best].policy,
                 .folder = folder,
                 .reader = reader,
                 .arena = arena};
  hec_text *guide = &text[GUIDE];
  hec_status status = HEC_OK;
  hec_text_add(guide, "# What to change\n\n");
  hec_recommendation_verdict(r, guide);
  hec_text_add(guide, "\n| file | for | which row | what it cannot say |\n|---|---|---|---|\n");
  for (int32_t i = 0; status == HEC_OK && i < GUIDE; i++) {
    HEC_SCOPED(hec_text) cannot = {0};
    status = writers[i].write(&j, &text[i], &cannot);
    hec_text_printf(guide, "| `%s` | %s | ", hec_recommendation_files[i], writers[i].of);
    add_runs(r, writers[i].row, text[i].length > 0, guide);
    hec_text_add(guide, " | ");
    add_cell(&cannot, guide);
    hec_text_add(guide, " |\n");
  }
  if (!j.policy->baseline)
    hec_text_printf(
        guide,
        "\nPlacement policy `%s` is not a setting of Megatron-LM, torchtitan and DeepSpeed. Their files are "
        "of another row, see above. With it take the layout of `setup.json`. A PyTorch trainer runs it with "
        "hecate.torch, for instance `hecate.torch.hf.replace(model, \"%s\", tokens=...)`; see docs/torch.md.\n",
        j.policy->name, j.policy->name);
  return status;
}
