/* What hec_report_draw is made of. */
#pragma once
#include "tools/front/page/report.h"

/* it->timeline: who does what when on some ranks, as fine as fits, and the critical path. */
void hec_report_draw_timeline(const hec_program *program, const hec_timeline *timeline, hec_report_iteration *it);
