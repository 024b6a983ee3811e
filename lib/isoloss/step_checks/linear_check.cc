#include "isoloss/step_checks/linear_check.h"

#include <algorithm>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/oracle/scalar_product.h"
#include "isoloss/step_checks/operand_states.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;
using oracle::Sample;
using oracle::ScalarOperand;
using oracle::ScalarProduct;

using precision::GemmPrecision;
using precision::GemmRole;

/// A leaf of the router gate's weight gradient has this many rows
/// (docs/numerics.md, section 12).
constexpr size_t kTokenLeaf = 32;

/// Returns whether a description is the expected one. `spec` is valid if the
/// step `announced` one; null expects none.
bool SameSpec(bool announced, const formats::Quantization& spec,
              const formats::Quantization* expected) {
  if (!announced || expected == nullptr) {
    return announced == (expected != nullptr);
  }
  return spec == *expected;
}

/// Adds an element that is other, since the formats or rows of `tensor` are not
/// what they must be.
void ReportMisdeclared(const RecordedTensor& tensor, ReportSink& sink) {
  Comparison comparison(Grid::kFp32);
  comparison.AddOther(0, 0, 0.0f, HUGE_VAL);
  sink.Add(tensor.name, comparison);
}

/// The batch and the routing give the groups of a site's rows and the ends of
/// their segments.
struct SiteGroups {
  std::vector<size_t> begins;
  std::vector<size_t> ends;  // [groups * segments]

  size_t count() const { return begins.size() - 1; }
  std::span<const size_t> SegmentsOf(size_t group) const {
    const size_t segments = ends.size() / count();
    return std::span(ends).subspan(group * segments, segments);
  }
  template <typename T>
  MatrixView<T> RowsOf(MatrixView<T> matrix, size_t group) const {
    return matrix.Rows(begins[group], begins[group + 1] - begins[group]);
  }
};

SiteGroups GroupsOf(const StepInputs& inputs, const LinearSite& site) {
  if (site.of_experts) {
    const ExpertRows& rows = inputs.expert_rows[site.moe_layer];
    SiteGroups groups = {rows.begins, rows.unit_ends};
    if (!groups.ends.empty()) return groups;
    for (size_t e = 0; e < groups.count(); ++e) {
      groups.ends.push_back(rows.begins[e + 1] - rows.begins[e]);
    }
    return groups;
  }
  SiteGroups groups = {{0, inputs.tokens()}, inputs.batch.sequence_ends};
  if (site.token_leaves) {
    groups.ends.clear();
    for (size_t end = 0; end < inputs.tokens();) {
      end = std::min(end + kTokenLeaf, inputs.tokens());
      groups.ends.push_back(end);
    }
  }
  return groups;
}

/// Compares which rows belong to which group. Segments may differ: the values
/// show it if segments matter to MX blocks, and any order is right for sums.
void RequireRows(const RecordedTensor& tensor, const SiteGroups& groups,
                 ReportSink& sink) {
  const bool same = tensor.begins.empty() ? groups.count() == 1
                                          : tensor.begins == groups.begins;
  if (!same) ReportMisdeclared(tensor, sink);
}

/// Returns the rows of a stacked weight that belong to one group.
MatrixView<const float> WeightOf(MatrixView<const float> weight, size_t groups,
                                 size_t group) {
  const size_t rows = weight.rows() / groups;
  return weight.Rows(group * rows, rows);
}

/// Describes the operands of one site.
class SiteOperands {
 public:
  SiteOperands(const StepInputs& inputs, const LinearSite& site)
      : inputs_(inputs), site_(site), groups_(GroupsOf(inputs, site)) {}

  const SiteGroups& groups() const { return groups_; }
  const GemmPrecision& For(GemmRole role) const {
    return inputs_.recipe.For(site_.index, role);
  }

  /// Returns x of fprop or dy of dgrad, where each segment of rows is a tensor.
  ScalarOperand Rows(GemmRole role, const Matrix<float>& values,
                     size_t group) const {
    return {.values = groups_.RowsOf(values.view(), group),
            .quantization = For(role).left_operand(),
            .state = StateOf(role, Side::kLeft, group),
            .tensor_ends = groups_.SegmentsOf(group)};
  }
  /// Returns W of fprop or dgrad.
  ScalarOperand Weight(GemmRole role, const Matrix<float>& values,
                       size_t group) const {
    return {.values = WeightOf(values.view(), site_.groups, group),
            .down = role == GemmRole::kDgrad,
            .quantization = For(role).right_operand(),
            .state = StateOf(role, Side::kRight, group)};
  }
  /// Returns dy or x of wgrad, which dgrad or fprop may have quantised before.
  ScalarOperand Columns(Side side, const Matrix<float>& values,
                        size_t group) const {
    const bool left = side == Side::kLeft;
    const GemmPrecision& wgrad = For(GemmRole::kWgrad);
    ScalarOperand operand = {
        .values = groups_.RowsOf(values.view(), group),
        .down = true,
        .quantization = left ? wgrad.left_operand() : wgrad.right_operand(),
        .state = StateOf(GemmRole::kWgrad, side, group)};
    if (left ? wgrad.left_again : wgrad.right_again) {
      const GemmRole first = left ? GemmRole::kDgrad : GemmRole::kFprop;
      operand.before = For(first).left_operand();
      operand.state_before = StateOf(first, Side::kLeft, group);
    }
    return operand;
  }

  /// Reports `tensor` unless its announced descriptions and states are those of
  /// the products that quantise it along rows and down columns.
  void Require(const RecordedTensor& tensor, GemmRole rowwise,
               Side rowwise_side, GemmRole columnwise, Side columnwise_side,
               ReportSink& sink) const {
    const auto* along = OperandOf(rowwise, rowwise_side);
    const auto* down = OperandOf(columnwise, columnwise_side);
    const GemmPrecision& last = For(columnwise);
    const bool again =
        columnwise_side == Side::kLeft ? last.left_again : last.right_again;
    const size_t groups = site_.groups;
    if (!SameSpec(tensor.quantized_rowwise, tensor.rowwise, along) ||
        !SameSpec(tensor.quantized_columnwise, tensor.columnwise, down) ||
        tensor.columnwise_again != again ||
        !AreExpected(tensor.rowwise_states, along, inputs_,
                     {site_.name, rowwise, rowwise_side}, groups) ||
        !AreExpected(tensor.columnwise_states, down, inputs_,
                     {site_.name, columnwise, columnwise_side}, groups)) {
      ReportMisdeclared(tensor, sink);
    }
  }

 private:
  const formats::Quantization* OperandOf(GemmRole role, Side side) const {
    return side == Side::kLeft ? For(role).left_operand()
                               : For(role).right_operand();
  }
  formats::TensorState StateOf(GemmRole role, Side side, size_t group) const {
    return ExpectedState(inputs_, {site_.name, role, side}, group);
  }

  const StepInputs& inputs_;
  const LinearSite& site_;
  const SiteGroups groups_;
};

/// Compares a value with the estimate of its sum, or with its bits if the
/// product has them.
void Compare(const ScalarProduct& product, Grid grid, size_t row, size_t column,
             float value, const Estimate& sum, Comparison& comparison) {
  if (product.has_bits()) {
    comparison.AddExact(row, column, value, RoundTo(grid, sum.exact));
  } else {
    comparison.Add(row, column, value, sum);
  }
}

/// Compares a value with addend + the rounded sum, in FP32, which is rounded
/// again.
void CompareAdded(const ScalarProduct& product, Grid grid, size_t row,
                  size_t column, float value, float addend, const Estimate& sum,
                  Comparison& comparison) {
  if (product.has_bits()) {
    const float added = addend + RoundTo(grid, sum.exact);
    return comparison.AddExact(row, column, value,
                               RoundTo(grid, static_cast<double>(added)));
  }
  const Estimate before = {.exact = static_cast<double>(addend)};
  comparison.Add(row, column, value,
                 Rounded32(RoundedOnTheWay(grid, sum) + before));
}

/// Calls use(i, j, sum) for each sum that the sample sees. The product's rows
/// are those of the tensor from `begin` on.
void ForEachSum(const ScalarProduct& product, const Sample& sample,
                size_t begin, const ScalarProduct::Use& use) {
  if (sample.all()) return product.ForEach(use);
  product.ForEachOf(sample.In(begin, begin + product.rows()), begin, use);
}

/// Compares what the sample sees of a product with the rows of `values` from
/// `begin` on. If there is an addend, it has the same rows.
void CompareSums(const ScalarProduct& product, Grid grid,
                 const Matrix<float>& values, const Matrix<float>* addend,
                 size_t begin, const Sample& sample, Comparison& comparison) {
  const auto compare = [&](size_t i, size_t j, const Estimate& sum) {
    const size_t row = begin + i;
    if (addend == nullptr) {
      Compare(product, grid, row, j, values(row, j), sum, comparison);
    } else {
      CompareAdded(product, grid, row, j, values(row, j), (*addend)(row, j),
                   sum, comparison);
    }
  };
  if (grid != Grid::kBf16 || !sample.all()) {
    return ForEachSum(product, sample, begin, compare);
  }
  const auto rows = [&](const Matrix<float>& matrix) {
    return matrix.view().Rows(begin, product.rows());
  };
  comparison.AddEqual(product.ForEachUncertain(
      rows(values),
      addend == nullptr ? MatrixView<const float>() : rows(*addend), compare));
}

/// Returns the grid of the weight gradients.
Grid WgradGrid(const StepInputs& inputs) {
  const precision::Recipe& recipe = inputs.recipe.recipe();
  return recipe.weight_gradients == decltype(recipe.weight_gradients)::kBf16
             ? Grid::kBf16
             : Grid::kFp32;
}

/// Compares a result of fprop or dgrad, group by group.
void CompareRows(const StepInputs& inputs, const SiteOperands& operands,
                 GemmRole role, const RecordedTensor& rows,
                 const RecordedTensor& weight, const RecordedTensor& result,
                 Grid grid, const Matrix<float>* addend, ReportSink& sink) {
  const SiteGroups& groups = operands.groups();
  RequireRows(rows, groups, sink);
  RequireRows(result, groups, sink);
  const Sample sample = inputs.SampleOf(result.name);
  Comparison comparison(grid);
  for (size_t g = 0; g < groups.count(); ++g) {
    const ScalarProduct product(operands.Rows(role, rows.values, g),
                                operands.Weight(role, weight.values, g),
                                operands.For(role));
    CompareSums(product, grid, result.values, addend, groups.begins[g], sample,
                comparison);
  }
  comparison.AddUnseen(sample);
  sink.Add(result.name, comparison);
}

}  // namespace

std::vector<LinearSite> LinearSites(const StepInputs& inputs) {
  std::vector<LinearSite> sites;
  const model::ModelConfig& config = inputs.config;
  for (const precision::ResolvedSite& resolved : inputs.recipe.sites()) {
    LinearSite site;
    site.index = sites.size();
    site.name = resolved.site;
    site.weight = site.name + "_weight";
    site.output = inputs.activations;
    const std::string module = site.name.substr(0, site.name.rfind('.'));
    if (module.ends_with(".routed_experts")) {
      const size_t layer = std::stoul(module.substr(sizeof("layers.") - 1));
      site.of_experts = true;
      site.groups = config.num_experts;
      site.moe_layer = layer - config.n_dense_layers;
    }
    if (site.name.ends_with(".w3")) site.dgrad_addend = module + ".w1_dgrad";
    if (site.name.ends_with(".wkv_a")) {
      site.dgrad_addend =
          module + (config.q_lora_rank == 0 ? ".wq_dgrad" : ".wq_a_dgrad");
    }
    if (site.name.ends_with(".router.gate")) {
      site.output = Grid::kFp32;
      site.token_leaves = true;
    }
    if (site.name == "lm_head" && config.tied_embeddings) {
      site.weight = "tok_embeddings_weight";
      site.tied = true;
    }
    sites.push_back(site);
  }
  return sites;
}

void CheckFprop(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink) {
  const SiteOperands operands(inputs, site);
  const RecordedTensor& x = inputs.record.At(site.name + "_activation");
  const RecordedTensor& w = inputs.record.At(site.weight);
  const RecordedTensor& y = inputs.record.At(site.name + "_output");
  operands.Require(x, GemmRole::kFprop, Side::kLeft, GemmRole::kWgrad,
                   Side::kRight, sink);
  // The forward product quantises the whole weight along rows, the backward
  // product down columns. Neither quantises a result of the other product.
  operands.Require(w, GemmRole::kFprop, Side::kRight, GemmRole::kDgrad,
                   Side::kRight, sink);
  CompareRows(inputs, operands, GemmRole::kFprop, x, w, y, site.output, nullptr,
              sink);
}

void CheckDgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink) {
  const SiteOperands operands(inputs, site);
  const RecordedTensor& dy = inputs.record.At(site.name + "_gradient");
  const RecordedTensor& w = inputs.record.At(site.weight);
  const RecordedTensor& dx = inputs.record.At(site.name + "_dgrad");
  operands.Require(dy, GemmRole::kDgrad, Side::kLeft, GemmRole::kWgrad,
                   Side::kLeft, sink);
  const Matrix<float>* addend =
      site.dgrad_addend.empty() ? nullptr
                                : &inputs.record.At(site.dgrad_addend).values;
  CompareRows(inputs, operands, GemmRole::kDgrad, dy, w, dx, inputs.activations,
              addend, sink);
}

void CheckWgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink) {
  const SiteOperands operands(inputs, site);
  const RecordedTensor& dy = inputs.record.At(site.name + "_gradient");
  const RecordedTensor& x = inputs.record.At(site.name + "_activation");
  const RecordedTensor& dw = inputs.record.At(site.name + "_wgrad");
  const SiteGroups& groups = operands.groups();
  const size_t out = dw.values.rows() / site.groups;
  const Grid grid = WgradGrid(inputs);
  const Sample sample = inputs.SampleOf(dw.name);
  Comparison comparison(grid);
  for (size_t g = 0; g < groups.count(); ++g) {
    const ScalarProduct product(operands.Columns(Side::kLeft, dy.values, g),
                                operands.Columns(Side::kRight, x.values, g),
                                operands.For(GemmRole::kWgrad),
                                groups.SegmentsOf(g));
    CompareSums(product, grid, dw.values, nullptr, g * out, sample, comparison);
  }
  comparison.AddUnseen(sample);
  sink.Add(dw.name, comparison);
}

std::vector<Estimate> WeightGradient(const StepInputs& inputs,
                                     const LinearSite& site,
                                     const Sample& sample) {
  ISOLOSS_ASSERT(site.groups == 1);
  const SiteOperands operands(inputs, site);
  const Matrix<float>& dy = inputs.record.At(site.name + "_gradient").values;
  const Matrix<float>& x = inputs.record.At(site.name + "_activation").values;
  const ScalarProduct product(operands.Columns(Side::kLeft, dy, 0),
                              operands.Columns(Side::kRight, x, 0),
                              operands.For(GemmRole::kWgrad),
                              operands.groups().SegmentsOf(0));
  std::vector<Estimate> result(sample.seen());
  size_t next = 0;
  const auto store = [&](size_t i, size_t j, const Estimate& dot) {
    const size_t place = sample.all() ? i * product.cols() + j : next++;
    result[place] = RoundedOnTheWay(WgradGrid(inputs), dot);
  };
  ForEachSum(product, sample, 0, store);
  return result;
}

void AddLinearParts(const StepInputs& inputs, std::vector<CheckPart>& parts) {
  for (const LinearSite& site : LinearSites(inputs)) {
    for (const auto check : {CheckFprop, CheckDgrad, CheckWgrad}) {
      if (site.tied && check == CheckWgrad) continue;
      parts.emplace_back(
          [site, check](const StepInputs& step, ReportSink& sink) {
            check(step, site, sink);
          });
    }
  }
}

}  // namespace isoloss::step_checks
