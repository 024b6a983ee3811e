// The device's forms of the kernels that work row by row: the functions of
// kernels/rowwise.h, routing.h, embedding.h and score_entropy.h. Matrices lie
// in the device's memory, and so do the arrays that belong to them: gains,
// parameters and moments. What the host makes anew for each batch (indices,
// positions, labels) and reads from it (losses, entropies, sums of leaves) lies
// in the host's memory. The functions of kernels/ have checked the shapes.
#pragma once

#include <span>
#include <vector>

#include "isoloss/device/element_kernels.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/routing_kernels.h"
#include "isoloss/device/row_kernels.h"
#include "isoloss/device/softmax_kernels.h"
#include "isoloss/kernels/embedding.h"
#include "isoloss/kernels/routing.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/score_entropy.h"

namespace isoloss::device {

using kernels::RouterRule;

/// Calls body(i) for each i in [0, count).
template <typename Target, typename Body>
void ForEach(Call<Target>& call, size_t count, const Body& body) {
  call.Launch(ForEachElement<Body>{body, count});
}

/// Tells whether all rows of matrices of one width consist of quads.
template <typename... Matrices>
bool HaveQuads(const Input& first, const Matrices&... others) {
  return first.cols() % kQuad == 0 && AreQuads(first) &&
         (AreQuads(others) && ...);
}

inline Input AsRow(std::span<const float> values) {
  return {values.data(), 1, values.size()};
}

inline Output AsRow(std::span<float> values) {
  return {values.data(), 1, values.size()};
}

/// Launches MapElements.
template <typename Target, typename Function, size_t kInputs, size_t kOutputs>
void Map(Call<Target>& call, const Function& function,
         const Input (&in)[kInputs], const Output (&out)[kOutputs]) {
  MapElements<kInputs, kOutputs, Function> kernel{.function = function};
  kernel.has_quads = true;
  for (size_t i = 0; i < kInputs; ++i) {
    kernel.in[i] = in[i];
    kernel.has_quads = kernel.has_quads && HaveQuads(in[i]);
  }
  for (size_t i = 0; i < kOutputs; ++i) {
    kernel.out[i] = out[i];
    kernel.has_quads = kernel.has_quads && HaveQuads(out[i]);
  }
  kernel.parts_of_row = out[0].cols() / (kernel.has_quads ? kQuad : 1);
  call.Launch(kernel);
}

/// Returns an index of the host's as the device's memory has it.
/// Errors   ShapeError if an entry is outside [0, rows).
template <typename Target>
MatrixView<const int32_t> UploadIndex(Call<Target>& call, const char* where,
                                      MatrixView<const int32_t> index,
                                      size_t rows) {
  kernels::RequireRows(where, index, 0, rows);
  std::vector<int32_t> dense;
  for (size_t t = 0; t < index.rows(); ++t) {
    dense.insert(dense.end(), index.Row(t), index.Row(t) + index.cols());
  }
  return {call.Upload(std::span<const int32_t>(dense)), index.rows(),
          index.cols()};
}

template <typename Target>
void CastForm(Input source, Rounding rounding, Output out, Executor& executor) {
  Call<Target> call(executor);
  Map(call, CastOf{rounding}, {source}, {out});
}

template <typename Target>
void AddRowsForm(Input x, Input y, Rounding rounding, Output out,
                 Executor& executor) {
  Call<Target> call(executor);
  Map(call, SumOf{rounding}, {x, y}, {out});
}

template <typename Target>
void ElementSigmoidForm(Input x, Output out, Executor& executor) {
  Call<Target> call(executor);
  Map(call, SigmoidOf{}, {x}, {out});
}

template <typename Target>
void SwigluForwardForm(Input gate, Input up, Rounding rounding, Output h,
                       Executor& executor) {
  Call<Target> call(executor);
  Map(call, SwigluOf{rounding}, {gate, up}, {h});
}

template <typename Target>
void SwigluBackwardForm(Input gate, Input up, Input dh, Rounding rounding,
                        Output dgate, Output dup, Executor& executor) {
  Call<Target> call(executor);
  Map(call, SwigluGradientOf{rounding}, {gate, up, dh}, {dgate, dup});
}

template <typename Target>
void ApplyRopeForm(const HeadColumns<float>& x,
                   const kernels::RopeAngles& angles, Rounding rounding,
                   Executor& executor) {
  Call<Target> call(executor);
  ForEach(call, x.rows() * x.heads * angles.cos.cols(),
          RopePair{x, call.Upload(angles.positions), angles.cos, angles.sin,
                   angles.inverse, rounding});
}

template <typename Target>
void CopyHeadsForm(const HeadColumns<const float>& from,
                   const HeadColumns<float>& to, Executor& executor) {
  Call<Target> call(executor);
  ForEach(call, to.rows() * to.heads * to.width, CopyHeadElement{from, to});
}

template <typename Target>
void SumHeadsForm(const HeadColumns<const float>& from, Rounding rounding,
                  Output out, Executor& executor) {
  Call<Target> call(executor);
  ForEach(call, out.rows() * out.cols(), SumHeadsElement{from, rounding, out});
}

template <typename Target>
void GatherRowsForm(Input table, std::span<const int32_t> index, Output out,
                    Executor& executor) {
  Call<Target> call(executor);
  ForEach(call, index.size() * table.cols(),
          GatherElement{table, call.Upload(index), out});
}

template <typename Target>
void GatherCombineForm(Input rows, MatrixView<const int32_t> index,
                       Input weights, Input addend, Rounding rounding,
                       Output out, Executor& executor) {
  Call<Target> call(executor);
  const auto uploaded = UploadIndex(call, "GatherCombine", index, rows.rows());
  ForEach(call, out.rows() * out.cols(),
          CombineElement{rows, uploaded, weights, addend, rounding, out});
}

template <typename Target>
void GatherCombineBackwardForm(Input rows, MatrixView<const int32_t> index,
                               Input weights, Input dout, Rounding rounding,
                               Output drows, Output dweights,
                               Executor& executor) {
  Call<Target> call(executor);
  const auto uploaded =
      UploadIndex(call, "GatherCombineBackward", index, rows.rows());
  call.Launch(CombineBackwardRows{
      {}, rows, uploaded, weights, dout, rounding, drows, dweights});
}

template <typename Target>
void RmsNormForwardForm(Input x, std::span<const float> weight, float eps,
                        Rounding rounding, Output y, std::span<float> rstd,
                        Executor& executor) {
  Call<Target> call(executor);
  call.Launch(RmsNormForwardRows{{HaveQuads(x, y, AsRow(weight))},
                                 x,
                                 weight.data(),
                                 eps,
                                 rounding,
                                 y,
                                 rstd.data()});
}

template <typename Target>
void RmsNormBackwardForm(const kernels::RmsNormGradient& gradient,
                         Executor& executor) {
  const auto& [x, weight, rstd, dy, rounding, add, dx, dweight] = gradient;
  Call<Target> call(executor);
  const auto leaves = call.template Room<float>(
      CeilOf(x.rows(), kernels::kTokenLeaf), x.cols());
  call.Launch(RmsNormBackwardLeaves{HaveQuads(x, dy, dx, AsRow(weight)), x,
                                    weight.data(), rstd.data(), dy, rounding,
                                    add, dx, leaves});
  ForEach(call, x.cols(), FoldLeaves{leaves, dweight.data()});
}

template <typename Target>
void RowSoftmaxForm(Input x, Output out, Executor& executor) {
  Call<Target> call(executor);
  call.Launch(SoftmaxForwardRows<PlainSoftmaxRows>{
      {HaveQuads(x, out)}, {x, out}, 1.0f});
}

template <typename Target>
void CrossEntropyForm(Input logits, std::span<const int32_t> labels,
                      float grad_scale, Rounding rounding,
                      std::span<float> loss, Output dlogits,
                      Executor& executor) {
  Call<Target> call(executor);
  float* const losses = call.template Room<float>(loss.size());
  call.Launch(CrossEntropyRows{{HaveQuads(logits, dlogits)},
                               logits,
                               call.Upload(labels),
                               grad_scale,
                               rounding,
                               losses,
                               dlogits});
  call.Download(losses, loss);
}

template <typename Target>
void AdamWUpdateForm(std::span<float> parameter, std::span<float> first_moment,
                     std::span<float> second_moment,
                     std::span<const float> gradient,
                     const kernels::AdamWScalars& scalars, Executor& executor) {
  Call<Target> call(executor);
  Map(call, AdamWOf{scalars},
      {AsRow(gradient), AsRow(parameter), AsRow(first_moment),
       AsRow(second_moment)},
      {AsRow(parameter), AsRow(first_moment), AsRow(second_moment)});
}

template <typename Target>
void SelectExpertsForm(const RouterRule& rule, Input scores,
                       std::span<const float> bias,
                       MatrixView<int32_t> expert_ids, Executor& executor) {
  Call<Target> call(executor);
  const size_t tokens = scores.rows();
  ForEach(call, tokens,
          SelectExpertsOfToken{rule, scores, bias.data(), expert_ids,
                               call.template Room<char>(tokens, scores.cols()),
                               call.template Room<float>(tokens, rule.groups),
                               call.template Room<char>(tokens, rule.groups)});
}

template <typename Target>
void CombineWeightsForm(const RouterRule& rule, Input scores,
                        MatrixView<const int32_t> expert_ids, Output weights,
                        Executor& executor) {
  Call<Target> call(executor);
  ForEach(call, scores.rows(),
          CombineWeightsOfToken{rule, scores, expert_ids, weights});
}

template <typename Target>
void RouterScoreBackwardForm(const RouterRule& rule, Input scores,
                             MatrixView<const int32_t> expert_ids,
                             Input dweights, Output dlogits,
                             Executor& executor) {
  Call<Target> call(executor);
  ForEach(call, scores.rows(),
          ScoreBackwardOfToken{rule, scores, expert_ids, dweights, dlogits});
}

template <typename Target>
void ScoreEntropiesForm(Input scores, std::span<double> entropies,
                        Executor& executor) {
  Call<Target> call(executor);
  std::vector<kernels::ScoreLog::Interval> table;
  for (size_t i = 0; i < kernels::ScoreLog::kIntervals; ++i) {
    table.push_back(kernels::ScoreLog::IntervalOf(i));
  }
  double* const results = call.template Room<double>(entropies.size());
  ForEach(
      call, scores.rows(),
      EntropyOfToken{
          {call.Upload(std::span<const kernels::ScoreLog::Interval>(table))},
          scores,
          results});
  call.Download(results, entropies);
}

template <typename Target>
void AddRowForms(Forms& forms) {
  AddForm(&kernels::Cast, &CastForm<Target>, forms);
  AddForm(&kernels::Add, &AddRowsForm<Target>, forms);
  AddForm(&kernels::ElementSigmoid, &ElementSigmoidForm<Target>, forms);
  AddForm(&kernels::SwigluForward, &SwigluForwardForm<Target>, forms);
  AddForm(&kernels::SwigluBackward, &SwigluBackwardForm<Target>, forms);
  AddForm(&kernels::ApplyRope, &ApplyRopeForm<Target>, forms);
  AddForm(&kernels::CopyHeads, &CopyHeadsForm<Target>, forms);
  AddForm(&kernels::SumHeads, &SumHeadsForm<Target>, forms);
  AddForm(&kernels::GatherRows, &GatherRowsForm<Target>, forms);
  AddForm(&kernels::GatherCombine, &GatherCombineForm<Target>, forms);
  AddForm(&kernels::GatherCombineBackward, &GatherCombineBackwardForm<Target>,
          forms);
  AddForm(&kernels::RmsNormForward, &RmsNormForwardForm<Target>, forms);
  AddForm(&kernels::RmsNormBackward, &RmsNormBackwardForm<Target>, forms);
  AddForm(&kernels::RowSoftmax, &RowSoftmaxForm<Target>, forms);
  AddForm(&kernels::CrossEntropy, &CrossEntropyForm<Target>, forms);
  AddForm(&kernels::AdamWUpdate, &AdamWUpdateForm<Target>, forms);
  AddForm(&kernels::SelectExperts, &SelectExpertsForm<Target>, forms);
  AddForm(&kernels::CombineWeights, &CombineWeightsForm<Target>, forms);
  AddForm(&kernels::RouterScoreBackward, &RouterScoreBackwardForm<Target>,
          forms);
  AddForm(&kernels::ScoreEntropies, &ScoreEntropiesForm<Target>, forms);
}

}  // namespace isoloss::device
