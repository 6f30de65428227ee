/* The files of a training job's --out: the same figures as a page, JSON and CSV; the pipeline of three rows as timelines. */
#include "tools/front/args.h"
#include "tools/front/page/report.h"
#include "tools/front/timeline_files.h"
#include "tools/front/training/pipeline_drawing.h"
#include "tools/front/training/training_summary.h"

#include <string.h>

static const char balanced_name[] = "balanced routing";

/* ---- CSV ---- */

void hec_training_csv(const hec_training_summary *s, hec_text *out) {
  hec_text_add(out, "policy");
  for (int32_t c = 0; c < HEC_N_TRAINING_VALUES; c++)
    hec_text_printf(out, ",%s", hec_training_value_names[c].column);
  hec_text_add(out, "\n");
  for (int32_t i = -1; i < s->n_rows; i++) {
    double value[HEC_N_TRAINING_VALUES];
    hec_training_values(s, i, value);
    hec_text_add_csv(out, i < 0 ? balanced_name : s->rows[i].policy->name);
    for (int32_t c = 0; c < HEC_N_TRAINING_VALUES; c++) {
      hec_text_add(out, ",");
      if (c == HEC_TRAINING_FITS)
        hec_text_add(out, value[c] > 0 ? "true" : "false");
      else
        hec_text_add_double(out, value[c]);
    }
    hec_text_add(out, "\n");
  }
}

/* ---- Page ---- */

static hec_report_trained step_of(const hec_training_summary *s, const char *name, const hec_training_row *row,
                                  const hec_training_result *r) {
  hec_report_trained step = {.name = name,
                             .best = row == &s->rows[hec_training_fastest(s)],
                             .fits = r->memory.fits,
                             .step_s = r->step_s,
                             .tokens_per_s = r->tokens_per_s_per_gpu,
                             .tflops = r->model_tflops_per_gpu,
                             .mfu = r->mfu,
                             .vs_ep = s->rows[s->baseline].result.step_s / r->step_s,
                             .overload = row ? row->overload_median : -1,
                             .needed_bytes = r->memory.reserved + r->memory.outside};
  double computed_s = r->busy_s - r->dispatch_s - r->tensor_s - r->gather_s - r->sharded_s - r->host_s;
  step.part_s[HEC_STEP_COMPUTE] = computed_s > 0 ? computed_s : 0;
  step.part_s[HEC_STEP_DISPATCH] = r->dispatch_s;
  step.part_s[HEC_STEP_TENSOR] = r->tensor_s;
  step.part_s[HEC_STEP_GATHER] = r->gather_s;
  step.part_s[HEC_STEP_HOST] = r->host_s;
  step.part_s[HEC_STEP_BUBBLE] = r->bubble_s;
  step.part_s[HEC_STEP_DATA] = r->data_s + r->sharded_s;
  step.part_s[HEC_STEP_MOVES] = row ? row->moves_s : 0;
  step.part_s[HEC_STEP_OPTIMIZER] = r->optimizer_s;
  return step;
}

/* Fastest first, balanced routing among them. */
static hec_report_trained *sorted_steps(const hec_training_summary *s, hec_arena *arena) {
  hec_report_trained *steps = HEC_NEW(arena, hec_report_trained, s->n_rows + 1);
  int32_t shown[HEC_REPORT_SHOWN], n = hec_training_choose_rows(s, HEC_REPORT_SHOWN - 1, shown);
  for (int32_t i = -1; i < s->n_rows; i++) {
    const hec_training_row *row = i < 0 ? NULL : &s->rows[i];
    hec_report_trained step =
        row ? step_of(s, row->policy->name, row, &row->result) : step_of(s, balanced_name, NULL, &s->balanced);
    step.about = row ? hec_args_with_flags(row->policy->summary, arena) : "every expert gets the mean load";
    step.shown = !row;
    for (int32_t k = 0; k < n; k++)
      step.shown = step.shown || shown[k] == i;
    int32_t k = i + 1;
    for (; k > 0 && steps[k - 1].step_s > step.step_s; k--)
      steps[k] = steps[k - 1];
    steps[k] = step;
  }
  return steps;
}

typedef struct {
  hec_arena arena;
  hec_text layout, recipe, job, band, verdict;
  hec_report_fact facts[4], assumed[HEC_ASSUMED_MAX + 1];
  hec_report_pipeline pipelines[3];
  hec_report_training training;
} page;

static void page_words(const hec_training_summary *s, page *p) {
  const hec_training *t = &s->set_up->training;
  hec_training_verdict(s, "\n", &p->verdict);
  hec_text_add(&p->verdict, "\n");
  hec_training_say_memory(s, "\n", &p->verdict);
  hec_text_printf(&p->job, "%s on %d GPUs (%s), %d sequences of %d tokens a step, micro-batches of %d",
                  s->set_up->moe.name, (int)t->layout.gpus, t->laws->gpu.name, (int)t->global_batch, (int)t->seq,
                  (int)t->micro_batch);
  hec_layout_write(&t->layout, &p->layout);
  hec_text_printf(&p->layout, ", pipeline %s", hec_training_pipeline_name(s->set_up));
  hec_recipe_write(&t->recipe, &p->recipe);
  hec_training_band_say(s, &p->band);
  const hec_report_fact facts[] = {
      {"job", p->job.data}, {"layout", p->layout.data}, {"recipe", p->recipe.data}, {"band", p->band.data}};
  memcpy(p->facts, facts, sizeof facts);
  for (int32_t i = 0; i < s->set_up->n_assumed; i++)
    p->assumed[i] = (hec_report_fact){"", s->set_up->assumed[i]};
  p->assumed[s->set_up->n_assumed] = (hec_report_fact){"not modelled", hec_training_not_modelled};
}

static void page_free(page *p) {
  hec_text *texts[] = {&p->layout, &p->recipe, &p->job, &p->band, &p->verdict};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    hec_text_free(texts[i]);
  for (int32_t i = 0; i < p->training.n_pipelines; i++)
    hec_arena_free(&p->pipelines[i].held.arena);
  hec_arena_free(&p->arena);
}

/* ---- Pipelines ---- */

/* Row -1: balanced routing. */
static hec_status draw_row(const hec_training_summary *s, int32_t row, page *p, const hec_timeline_out *to) {
  const hec_training_job balanced = {.training = &s->set_up->training, .pipeline = s->set_up->pipeline};
  const hec_training_job *job = row < 0 ? &balanced : &s->rows[row].job;
  hec_report_pipeline *shown = &p->pipelines[p->training.n_pipelines];
  hec_training_pieces pieces;
  hec_training_result result;
  hec_pipeline_drawing drawing;
  const char *name = row < 0 ? balanced_name : s->rows[row].policy->name;
  HEC_TRY(hec_training_run_pieces(job, &pieces, &result));
  hec_pipeline_drawing_make(&(hec_pipeline_drawn){.training = job->training,
                                                  .pieces = &pieces,
                                                  .result = &result,
                                                  .moves_s = job->moves_s,
                                                  .factor = s->factor},
                            &drawing);
  hec_status status = hec_timeline_draw(to, &(hec_drawing){.label = name,
                                                           .folder = row < 0 ? "balanced" : name,
                                                           .index = p->training.n_pipelines,
                                                           .program = &drawing.program,
                                                           .timeline = &drawing.timeline});
  hec_report_piece *kept = HEC_NEW(&p->arena, hec_report_piece, drawing.n_pieces);
  memcpy(kept, drawing.pieces, (size_t)drawing.n_pieces * sizeof *kept);
  *shown = (hec_report_pipeline){
      .name = name, .open = row >= 0, .n_stages = drawing.program.n_ranks, .pieces = kept, .n = drawing.n_pieces};
  hec_report_draw_memory(&drawing.program, &drawing.timeline, &shown->held);
  p->training.n_pipelines++;
  hec_pipeline_drawing_free(&drawing);
  hec_arena_free(&pieces.arena);
  return status;
}

static hec_status draw_rows(const hec_training_summary *s, page *p, const hec_timeline_out *to) {
  int32_t best = hec_training_fastest(s);
  const int32_t rows[] = {-1, s->baseline, best};
  hec_timeline_begin(to);
  for (int32_t i = 0; i < 3; i++)
    if (i < 2 || best != s->baseline)
      HEC_TRY(draw_row(s, rows[i], p, to));
  hec_timeline_end(to);
  return HEC_OK;
}

static void write_page(const hec_training_summary *s, page *p, hec_text *out) {
  const hec_trace_header *header = &s->set_up->job.header;
  const hec_training_memory *m = &s->balanced.memory;
  page_words(s, p);
  p->training.steps = sorted_steps(s, &p->arena);
  p->training.n_steps = s->n_rows + 1;
  p->training.pipelines = p->pipelines;
  p->training.limit_bytes = m->device_bytes > 0 ? (m->device_bytes - m->outside) * m->peak / m->reserved : 0;
  const hec_report report = {.tool = s->tool,
                             .title = header->name[0] ? header->name : s->trace,
                             .training = &p->training,
                             .verdict = p->verdict.data,
                             .synthetic = header->synthetic != NULL,
                             .facts = p->facts,
                             .n_facts = 4,
                             .assumed = p->assumed,
                             .n_assumed = s->set_up->n_assumed + 1};
  hec_report_write(&report, out);
}

hec_status hec_training_write_out(const hec_training_summary *s, const char *folder,
                                  const hec_timeline_format *format) {
  HEC_SCOPED(hec_output_files) files = {0};
  HEC_SCOPED(page) p = {.job = {0}};
  hec_timeline_files by_rank = {.out = folder, .format = format};
  const hec_timeline_out to = {format, &files.timeline, hec_timeline_files_put, &by_rank};
  hec_training_csv(s, &files.csv);
  hec_training_json(s, &files.json);
  hec_status status = hec_timeline_files_begin(&by_rank);
  if (status == HEC_OK)
    status = draw_rows(s, &p, &to);
  if (status == HEC_OK)
    write_page(s, &p, &files.page);
  status = hec_timeline_files_finish(&by_rank, status, &files);
  return status;
}
