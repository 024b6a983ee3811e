#include "isoloss/model/attention_core.h"

#include <algorithm>

#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using kernels::Rounding;

/// Buffers of the thread that runs a task, kept from task to task.
struct CoreScratch {
  kernels::PackedOperand keys;    // of the task, for scores
  kernels::PackedOperand values;  // of the task, for their gradients
  Matrix<float> probabilities;    // [block, keys]
  Matrix<float> dscores;          // [block, keys]
  Matrix<float> dkeys;            // [length, key width]
  Matrix<float> dvalues;          // [length, value width]
  ThreadTeam serial{1};
};

CoreScratch& ThisThreadsCoreScratch() {
  static thread_local CoreScratch scratch;
  return scratch;
}

/// Rows of scratch.probabilities become those of queries [first, first + rows)
/// of the task's document over its keys [0, first + rows), which are packed.
void Probabilities(const AttentionInputs& in, const AttentionTask& task,
                   size_t first, size_t rows, CoreScratch& scratch) {
  Matrix<float>& probabilities = scratch.probabilities;
  probabilities.ResizeUninitialized(rows, first + rows);
  kernels::Gemm({.a = {in.queries.Of(task.head, task.begin + first, rows)},
                 .c = probabilities.view(),
                 .packed_b = &scratch.keys});
  kernels::CausalSoftmaxForward(probabilities.view(), first + 1, in.scale);
}

/// sum[0:keys] += left^T right, where left is [block, keys].
void AddTransposedProduct(MatrixView<const float> left,
                          MatrixView<const float> right, Matrix<float>& sum) {
  const MatrixView<float> target = sum.view().Rows(0, left.cols());
  kernels::Gemm({.a = {left, Contraction::kRows},
                 .b = {right, Contraction::kRows},
                 .c = target,
                 .addend = target});
}

}  // namespace

AttentionTask TaskAt(const AttentionInputs& in, size_t index) {
  const size_t document = index / in.heads;
  const size_t begin = document == 0 ? 0 : in.document_ends[document - 1];
  return {index % in.heads, begin, in.document_ends[document] - begin};
}

void AttentionForward(const AttentionInputs& in, Rounding rounding,
                      const HeadColumns<float>& out, ThreadTeam& team) {
  team.ParallelFor(in.document_ends.size() * in.heads, [&](size_t index) {
    const AttentionTask task = TaskAt(in, index);
    CoreScratch& scratch = ThisThreadsCoreScratch();
    scratch.keys.Pack({in.keys.Of(task.head, task.begin, task.length)});
    for (size_t first = 0; first < task.length; first += kQueryBlock) {
      const size_t rows = std::min(kQueryBlock, task.length - first);
      Probabilities(in, task, first, rows, scratch);
      kernels::Gemm({.a = {scratch.probabilities.cview()},
                     .b = {in.values.Of(task.head, task.begin, first + rows),
                           Contraction::kRows},
                     .c = out.Of(task.head, task.begin + first, rows),
                     .rounding = rounding});
    }
  });
}

void AttentionBackward(const AttentionInputs& in,
                       const HeadColumns<const float>& dout, Rounding rounding,
                       const HeadColumns<float>& dqueries,
                       const HeadColumns<float>& dkeys,
                       const HeadColumns<float>& dvalues, ThreadTeam& team) {
  team.ParallelFor(in.document_ends.size() * in.heads, [&](size_t index) {
    const AttentionTask task = TaskAt(in, index);
    CoreScratch& scratch = ThisThreadsCoreScratch();
    scratch.keys.Pack({in.keys.Of(task.head, task.begin, task.length)});
    scratch.values.Pack({in.values.Of(task.head, task.begin, task.length)});
    scratch.dkeys.Resize(task.length, in.keys.width);
    scratch.dvalues.Resize(task.length, in.values.width);
    for (size_t first = 0; first < task.length; first += kQueryBlock) {
      const size_t rows = std::min(kQueryBlock, task.length - first);
      const size_t keys = first + rows;
      const auto dout_block = dout.Of(task.head, task.begin + first, rows);
      Probabilities(in, task, first, rows, scratch);
      AddTransposedProduct(scratch.probabilities.cview(), dout_block,
                           scratch.dvalues);

      scratch.dscores.ResizeUninitialized(rows, keys);
      kernels::Gemm({.a = {dout_block},
                     .c = scratch.dscores.view(),
                     .packed_b = &scratch.values});
      kernels::CausalSoftmaxBackward(scratch.probabilities.cview(), first + 1,
                                     in.scale, scratch.dscores.view());

      kernels::Gemm(
          {.a = {scratch.dscores.cview()},
           .b = {in.keys.Of(task.head, task.begin, keys), Contraction::kRows},
           .c = dqueries.Of(task.head, task.begin + first, rows),
           .rounding = rounding});
      AddTransposedProduct(scratch.dscores.cview(),
                           in.queries.Of(task.head, task.begin + first, rows),
                           scratch.dkeys);
    }
    kernels::Cast(scratch.dkeys.cview(), rounding,
                  dkeys.Of(task.head, task.begin, task.length), scratch.serial);
    kernels::Cast(scratch.dvalues.cview(), rounding,
                  dvalues.Of(task.head, task.begin, task.length),
                  scratch.serial);
  });
}

}  // namespace isoloss::model
