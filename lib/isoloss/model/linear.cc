#include "isoloss/model/linear.h"

#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using precision::GemmRole;

/// Returns the rows that group g owns of a matrix, or nothing of an empty
/// matrix.
template <typename T>
MatrixView<T> RowsOf(MatrixView<T> matrix, const RowGroups& groups, size_t g) {
  if (matrix.empty()) return matrix;
  const size_t begin = groups.begins[g];
  return matrix.Rows(begin, groups.begins[g + 1] - begin);
}

/// Returns the ends of the leaves of group g, counted from its first row.
std::span<const size_t> LeavesOf(const RowGroups& groups, size_t g) {
  const size_t leaves = groups.leaf_ends.size() / (groups.begins.size() - 1);
  return groups.leaf_ends.subspan(g * leaves, leaves);
}

}  // namespace

Linear::Linear(LayerContext& context, std::string site)
    : context_(context), site_(std::move(site)) {
  const size_t index = context.graph.SiteIndex(site_);
  parameter_ = context.graph.sites[index].parameter;
  const ParameterSpec& weight = context.graph.parameters[parameter_];
  const expert_parallel::ExpertShard experts = context.mesh.experts();
  groups_ = weight.of_experts ? experts.count : 1;
  out_ = weight.rows();
  fprop_ = &context.recipe.For(index, GemmRole::kFprop);
  dgrad_ = &context.recipe.For(index, GemmRole::kDgrad);
  wgrad_ = &context.recipe.For(index, GemmRole::kWgrad);
  for (const auto* precision : {fprop_, dgrad_, wgrad_}) {
    const auto count = static_cast<int64_t>(groups_);
    context.gemms_per_step += count;
    if (precision->quantized()) context.quantized_gemms_per_step += count;
  }
  weight_ = &context.gemm_weights.Add({parameter_, site_,
                                       weight.of_experts ? experts.first : 0,
                                       groups_, fprop_, dgrad_});
}

void Linear::QueueForward(MatrixView<const float> x, const RowGroups& groups,
                          kernels::Rounding rounding,
                          MatrixView<float> y) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  AnnounceOperand(TensorKind::kActivation, x, groups, GemmRole::kFprop,
                  OperandSide::kRight);
  AnnounceResult(TensorKind::kOutput, y, groups);
  NoteAmax(SiteTensor::kActivation, x, groups);
  for (size_t g = 0; g < groups_; ++g) {
    context_.gemms.Add({.problem = {.a = Rows(GemmRole::kFprop, x, groups, g),
                                    .b = WeightOperand(GemmRole::kFprop, g),
                                    .c = RowsOf(y, groups, g),
                                    .rounding = rounding,
                                    .accumulation = fprop_->accumulation},
                        .site = site_,
                        .role = GemmRole::kFprop,
                        .group = g});
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
      {.problem = {.a = Rows(GemmRole::kDgrad, dy, groups, group),
                   .b = WeightOperand(GemmRole::kDgrad, group),
                   .c = RowsOf(dx, groups, group),
                   .rounding = context_.rounding,
                   .accumulation = dgrad_->accumulation,
                   .addend = RowsOf(addend, groups, group)},
       .site = site_,
       .role = GemmRole::kDgrad,
       .group = group});
}

void Linear::QueueWeightGradient(size_t group, MatrixView<const float> x,
                                 MatrixView<const float> dy,
                                 const RowGroups& groups) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  const MatrixView<float> dweight = context_.Gradient(parameter_);
  context_.gemms.Add(
      {.problem = {.a = Columns(OperandSide::kLeft, dy, groups, group),
                   .b = Columns(OperandSide::kRight, x, groups, group),
                   .c = dweight.Rows(group * out_, out_),
                   .accumulation = wgrad_->accumulation,
                   .segment_ends = LeavesOf(groups, group)},
       .site = site_,
       .role = GemmRole::kWgrad,
       .group = group});
}

kernels::Operand Linear::Rows(GemmRole role, MatrixView<const float> rows,
                              const RowGroups& groups, size_t group) const {
  const auto* quantization = PrecisionOf(role).left_operand();
  return {
      .values = RowsOf(rows, groups, group),
      .contraction = Contraction::kColumns,
      .quantization = quantization,
      .tensor_ends = LeavesOf(groups, group),
      .state = StateOf(quantization, role, OperandSide::kLeft, groups, group)};
}

kernels::Operand Linear::Columns(OperandSide side, MatrixView<const float> rows,
                                 const RowGroups& groups, size_t group) const {
  const bool left = side == OperandSide::kLeft;
  const auto* quantization =
      left ? wgrad_->left_operand() : wgrad_->right_operand();
  kernels::Operand operand = {
      .values = RowsOf(rows, groups, group),
      .contraction = Contraction::kRows,
      .quantization = quantization,
      .state = StateOf(quantization, GemmRole::kWgrad, side, groups, group)};
  if (left ? wgrad_->left_again : wgrad_->right_again) {
    const GemmRole first = left ? GemmRole::kDgrad : GemmRole::kFprop;
    operand.before = PrecisionOf(first).left_operand();
    operand.state_before =
        StateOf(operand.before, first, OperandSide::kLeft, groups, group);
  }
  return operand;
}

const precision::GemmPrecision& Linear::PrecisionOf(GemmRole role) const {
  return role == GemmRole::kFprop   ? *fprop_
         : role == GemmRole::kDgrad ? *dgrad_
                                    : *wgrad_;
}

const kernels::OperandState* Linear::StateOf(
    const formats::Quantization* quantization, GemmRole role, OperandSide side,
    const RowGroups& groups, size_t group) const {
  if (quantization == nullptr || !quantization->needs_state()) return nullptr;
  const size_t leaves = LeavesOf(groups, group).size();
  const size_t first_tensor = groups.of_experts ? context_.mesh.first_unit()
                                                : context_.mesh.part() * leaves;
  const size_t first_group =
      groups.of_experts ? context_.mesh.experts().first : 0;
  kernels::OperandState& state =
      context_.operand_states.emplace_back(model::StateOf(
          context_.key, site_, role, side, first_group + group, first_tensor));
  // x is the left operand of fprop and the right operand of wgrad; the
  // remaining operands are dy.
  const bool is_x = role == GemmRole::kFprop ||
                    (role == GemmRole::kWgrad && side == OperandSide::kRight);
  state.common.history = context_.amax.Of(
      site_, is_x ? SiteTensor::kActivation : SiteTensor::kGradient,
      first_group + group, quantization->history);
  return &state;
}

void Linear::NoteAmax(SiteTensor tensor, MatrixView<const float> rows,
                      const RowGroups& groups) const {
  if (!context_.amax.Notes(site_, tensor)) return;
  const size_t first = groups.of_experts ? context_.mesh.experts().first : 0;
  std::vector<float> amaxes(groups_);
  kernels::FiniteAmaxes(rows, groups.begins, kernels::Rounding::kFp32, amaxes,
                        context_.executor);
  for (size_t g = 0; g < groups_; ++g) {
    context_.amax.Note(site_, tensor, first + g, amaxes[g]);
  }
}

std::vector<kernels::OperandState> Linear::StatesOf(
    const formats::Quantization* quantization, GemmRole role, OperandSide side,
    const RowGroups& groups) const {
  std::vector<kernels::OperandState> states;
  for (size_t g = 0; g < groups_; ++g) {
    const auto* state = StateOf(quantization, role, side, groups, g);
    if (state != nullptr) states.push_back(*state);
  }
  return states;
}

kernels::Operand Linear::WeightOperand(GemmRole role, size_t group) const {
  const auto state =
      weight_->StateFor(role, group, context_.key, context_.amax);
  return {
      .values = context_.Weight(parameter_).Rows(group * out_, out_),
      .contraction =
          role == GemmRole::kFprop ? Contraction::kColumns : Contraction::kRows,
      .quantization = weight_->QuantizationFor(role),
      .state = state ? &context_.operand_states.emplace_back(*state) : nullptr,
      .rounding = context_.rounding};
}

void Linear::AnnounceInputGradient(MatrixView<const float> dy,
                                   const RowGroups& groups,
                                   MatrixView<const float> dx) const {
  AnnounceOperand(TensorKind::kGradient, dy, groups, GemmRole::kDgrad,
                  OperandSide::kLeft);
  AnnounceResult(TensorKind::kDgrad, dx, groups);
  NoteAmax(SiteTensor::kGradient, dy, groups);
}

void Linear::AnnounceOperand(TensorKind kind, MatrixView<const float> values,
                             const RowGroups& groups, GemmRole first,
                             OperandSide side) const {
  if (context_.tap == nullptr) return;
  const bool left = side == OperandSide::kLeft;
  const auto* rowwise = PrecisionOf(first).left_operand();
  const auto* columnwise =
      left ? wgrad_->left_operand() : wgrad_->right_operand();
  const auto rowwise_states =
      StatesOf(rowwise, first, OperandSide::kLeft, groups);
  const auto columnwise_states =
      StatesOf(columnwise, GemmRole::kWgrad, side, groups);
  Announce({.module = site_,
            .kind = kind,
            .values = values,
            .rows = context_.RowsInBatch(groups),
            .rowwise = rowwise,
            .columnwise = columnwise,
            .columnwise_again = left ? wgrad_->left_again : wgrad_->right_again,
            .rowwise_states = rowwise_states,
            .columnwise_states = columnwise_states},
           context_.memory(), *context_.tap);
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
