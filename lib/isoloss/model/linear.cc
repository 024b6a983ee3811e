#include "isoloss/model/linear.h"

#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using precision::GemmRole;

bool IsQuantized(const kernels::GemmProblem& problem) {
  return problem.a.quantization != nullptr ||
         problem.right_quantization() != nullptr;
}

/// What group g owns of a matrix; nothing of an empty one.
template <typename T>
MatrixView<T> RowsOf(MatrixView<T> matrix, const RowGroups& groups, size_t g) {
  if (matrix.empty()) return matrix;
  const size_t begin = groups.begins[g];
  return matrix.Rows(begin, groups.begins[g + 1] - begin);
}

}  // namespace

void GemmQueue::Add(const GemmTask& task) {
  problems_.push_back(task.problem);
  if (engine_) tasks_.push_back(task);
}

void GemmQueue::Run() {
  if (engine_) {
    engine_(tasks_, team_);
    tasks_.clear();
  } else {
    kernels::GemmBatch(problems_, team_);
  }
  for (const kernels::GemmProblem& problem : problems_) {
    ++executed_;
    if (IsQuantized(problem)) ++quantized_;
  }
  problems_.clear();
  for (const Announcement& announcement : announcements_) {
    announcement.sink->OnTensor(announcement.tensor);
  }
  announcements_.clear();
}

Linear::Linear(LayerContext& context, std::string site)
    : context_(context), site_(std::move(site)) {
  const size_t index = context.graph.SiteIndex(site_);
  parameter_ = context.graph.sites[index].parameter;
  const Parameter& weight = context.weights.parameters()[parameter_];
  groups_ = weight.groups();
  out_ = weight.rows();
  fprop_ = &context.recipe.For(index, GemmRole::kFprop);
  dgrad_ = &context.recipe.For(index, GemmRole::kDgrad);
  wgrad_ = &context.recipe.For(index, GemmRole::kWgrad);
  for (const auto* precision : {fprop_, dgrad_, wgrad_}) {
    const auto count = static_cast<int64_t>(groups_);
    context.gemms_per_step += count;
    if (precision->quantized()) context.quantized_gemms_per_step += count;
  }
  weight_ = &context.packed_weights.Add(parameter_, groups_, *fprop_, *dgrad_);
}

void Linear::QueueForward(MatrixView<const float> x, const RowGroups& groups,
                          kernels::Rounding rounding,
                          MatrixView<float> y) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  AnnounceOperand(TensorKind::kActivation, x, groups, fprop_->left_operand(),
                  wgrad_->right_operand());
  AnnounceResult(TensorKind::kOutput, y, groups);
  for (size_t g = 0; g < groups_; ++g) {
    context_.gemms.Add(
        {.problem = {.a = {RowsOf(x, groups, g), Contraction::kColumns,
                           fprop_->left_operand()},
                     .c = RowsOf(y, groups, g),
                     .rounding = rounding,
                     .packed_b = &weight_->forward[g]},
         .site = site_,
         .role = GemmRole::kFprop,
         .group = g,
         .unpacked_b = {GroupWeight(g), Contraction::kColumns,
                        fprop_->right_operand()}});
  }
}

void Linear::QueueBackward(MatrixView<const float> x,
                           MatrixView<const float> dy, const RowGroups& groups,
                           MatrixView<float> dx,
                           MatrixView<const float> addend) const {
  AnnounceInputGradient(dy, groups, dx);
  for (size_t g = 0; g < groups_; ++g) {
    QueueInputGradient(g, dy, groups, dx, addend);
    QueueWeightGradient(g, x, dy, groups);
  }
}

void Linear::QueueInputGradient(MatrixView<const float> dy,
                                const RowGroups& groups, MatrixView<float> dx,
                                MatrixView<const float> addend) const {
  AnnounceInputGradient(dy, groups, dx);
  for (size_t g = 0; g < groups_; ++g) {
    QueueInputGradient(g, dy, groups, dx, addend);
  }
}

void Linear::QueueWeightGradient(MatrixView<const float> x,
                                 MatrixView<const float> dy,
                                 const RowGroups& groups) const {
  for (size_t g = 0; g < groups_; ++g) QueueWeightGradient(g, x, dy, groups);
}

void Linear::QueueInputGradient(size_t group, MatrixView<const float> dy,
                                const RowGroups& groups, MatrixView<float> dx,
                                MatrixView<const float> addend) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  context_.gemms.Add(
      {.problem = {.a = {RowsOf(dy, groups, group), Contraction::kColumns,
                         dgrad_->left_operand()},
                   .c = RowsOf(dx, groups, group),
                   .rounding = context_.rounding,
                   .packed_b = &weight_->backward[group],
                   .addend = RowsOf(addend, groups, group)},
       .site = site_,
       .role = GemmRole::kDgrad,
       .group = group,
       .unpacked_b = {GroupWeight(group), Contraction::kRows,
                      dgrad_->right_operand()}});
}

void Linear::QueueWeightGradient(size_t group, MatrixView<const float> x,
                                 MatrixView<const float> dy,
                                 const RowGroups& groups) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  const size_t leaves = groups.leaf_ends.size() / groups_;
  const MatrixView<float> dweight = context_.Gradient(parameter_);
  const kernels::Operand right = {RowsOf(x, groups, group), Contraction::kRows,
                                  wgrad_->right_operand()};
  context_.gemms.Add(
      {.problem = {.a = {RowsOf(dy, groups, group), Contraction::kRows,
                         wgrad_->left_operand()},
                   .b = right,
                   .c = dweight.Rows(group * out_, out_),
                   .segment_ends =
                       groups.leaf_ends.subspan(group * leaves, leaves)},
       .site = site_,
       .role = GemmRole::kWgrad,
       .group = group,
       .unpacked_b = right});
}

MatrixView<const float> Linear::GroupWeight(size_t group) const {
  return context_.Weight(parameter_).Rows(group * out_, out_);
}

void Linear::AnnounceInputGradient(MatrixView<const float> dy,
                                   const RowGroups& groups,
                                   MatrixView<const float> dx) const {
  AnnounceOperand(TensorKind::kGradient, dy, groups, dgrad_->left_operand(),
                  wgrad_->left_operand());
  AnnounceResult(TensorKind::kDgrad, dx, groups);
}

void Linear::AnnounceOperand(TensorKind kind, MatrixView<const float> values,
                             const RowGroups& groups,
                             const formats::Quantization* rowwise,
                             const formats::Quantization* columnwise) const {
  if (context_.tap == nullptr) return;
  context_.tap->OnTensor({.module = site_,
                          .kind = kind,
                          .values = values,
                          .rows = context_.RowsInBatch(groups),
                          .rowwise = rowwise,
                          .columnwise = columnwise});
}

void Linear::AnnounceResult(TensorKind kind, MatrixView<const float> values,
                            const RowGroups& groups) const {
  if (context_.tap == nullptr) return;
  context_.gemms.Announce(*context_.tap,
                          {.module = site_,
                           .kind = kind,
                           .values = values,
                           .rows = context_.RowsInBatch(groups)});
}

}  // namespace isoloss::model
