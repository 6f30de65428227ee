/* Parallel layout of a training job: how its GPUs are shared out.
 *
 *     dense part    tp x cp x dp x pp = gpus        attention, norms, dense FFN, shared experts, embedding, head
 *     experts       etp x ep x edp x pp = gpus      so etp x ep x edp = tp x cp x dp in every pipeline stage
 *
 * The two mappings share one stage ("parallel folding", arXiv 2504.14960). Ranks are numbered as Megatron does: tp
 * fastest, then cp, then dp, then pp; of the experts etp fastest, then ep, then edp. As text: "tp=2 pp=8 vpp=2 ep=32
 * etp=1 cp=1", in any order; what is not named is 1, dp and edp follow from the GPUs. Layers per stage are as even as
 * they can be, and the first stages have one more. Where embedding and head count as a layer each makes them even, they
 * do. "pp=4:15,15,16,15" gives them, and so does "pp=4:15x2,16,15". */
#pragma once
#include "models/moe.h"

enum { HEC_STAGES_MAX = 512 };        /* pipeline stages, virtual ones counted */
enum { HEC_RANK_EXPERTS_MAX = 4096 }; /* of one layer on one rank */

typedef struct {
  int32_t gpus, tp, cp, pp, vpp, ep, etp;
  int32_t dp, edp;
  int32_t n_given;               /* 0: layers per stage are even; else pp * vpp */
  int32_t given[HEC_STAGES_MAX]; /* [n_given] layers of each model part, in the order of the model */
} hec_layout;

/* Reads the text; dp and edp are left 0 until hec_layout_fit. Errors: unknown or repeated key, bad number. */
hec_status hec_layout_read(const char *text, hec_layout *layout) HEC_MUST_USE;
/* Completes it for so many GPUs and that model, and checks it. Errors say which sizes do not divide, and the nearest that
 * would. */
hec_status hec_layout_fit(hec_layout *layout, int32_t gpus, const hec_moe *moe) HEC_MUST_USE;
/* "tp=2 pp=8 vpp=2 ep=32 etp=1 cp=1 dp=8 edp=4" */
void hec_layout_write(const hec_layout *layout, hec_text *text);

/* ":15x3,14", what stands behind pp=4; "": layers are even. */
void hec_layout_write_given(const hec_layout *layout, hec_text *text);
/* "tp=2 cp=1 pp=8:4x7,3 vpp=1 ep=32 etp=1": what hec_layout_read reads. */
void hec_layout_write_sizes(const hec_layout *layout, hec_text *text);

/* Layers of the model part `part` of pp * vpp, in the order of the model: the first one, and how many. */
int32_t hec_layout_layers(const hec_layout *layout, const hec_moe *moe, int32_t part, int32_t *first);
