/* See tables.h. */
#include "tools/validate/validate_commands.h"

#include "tools/front/output.h"
#include "tools/validate/report_out.h"
#include "validate/device/constants.h"
#include "validate/device/judge.h"

#include <stdio.h>
#include <sys/stat.h>

bool hec_tables_is_folder(const char *path) {
  struct stat found;
  return path && stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

hec_status hec_tables_judge(const char *folder, const char *sister, const char *out, bool json) {
  hec_judgement judgement;
  hec_status status = hec_judge_folder(folder, sister, &judgement);
  hec_report_texts texts = {.shown = {0}};
  if (status == HEC_OK) {
    hec_report_make(hec_judgement_report, &judgement, json ? HEC_DOC_JSON : HEC_DOC_TEXT, 0, &texts);
    status = hec_report_print(&texts, out);
  }
  hec_judgement_free(&judgement);
  return status;
}

hec_status hec_tables_calibrate(const hec_tables_calibrate_args *args) {
  if (!args->device)
    return hec_fail(HEC_BAD_INPUT,
                    "--from: expected --device NAME beside it: a preset of hecate-sim --list devices, or a file with a "
                    "data sheet (docs/devices.md)");
  if (args->out) {
    HEC_TRY(hec_output_check_file("--out", args->out));
    HEC_TRY(hec_paths_check((const hec_path_use[]){{"--device", args->device, false}, {"--out", args->out, true}}, 2));
  }
  hec_constants calibration;
  HEC_SCOPED(hec_text) text = {0}, file = {0};
  const hec_constants_options options = {
      .folder = args->from, .device = args->device, .law = args->law, .ablate = args->ablate};
  hec_status status = hec_constants_run(&options, &calibration);
  if (status == HEC_OK) {
    hec_doc_write(hec_constants_report, &calibration, HEC_DOC_TEXT, 0, &text);
    hec_doc_write(hec_constants_file, &calibration, HEC_DOC_JSON, 2, &file);
    if (args->out)
      status = hec_write_file(args->out, file.data, file.length);
  }
  if (status == HEC_OK && !args->out)
    hec_text_printf(&text, "\nNot kept: add --out FILE to write the device file, or --json.\n");
  if (status == HEC_OK)
    status = hec_output_print(args->json ? &file : &text);
  hec_constants_free(&calibration);
  return status;
}
