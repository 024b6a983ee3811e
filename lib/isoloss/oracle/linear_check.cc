#include "isoloss/oracle/linear_check.h"

#include <algorithm>
#include <array>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/oracle/exact_dot.h"

namespace isoloss::oracle {
namespace {

using precision::GemmPrecision;
using precision::GemmRole;

/// Rows per leaf of the router gate's weight gradient (docs/numerics.md,
/// section 12).
constexpr size_t kTokenLeaf = 32;

bool SameSpec(bool announced, const formats::Quantization& spec,
              const formats::Quantization* expected) {
  if (!announced || expected == nullptr) {
    return announced == (expected != nullptr);
  }
  return spec.element == expected->element &&
         spec.scale_rule == expected->scale_rule &&
         spec.non_finite == expected->non_finite;
}

/// A count of `tensor` that is not what the formats or rows must be.
void ReportMisdeclared(const RecordedTensor& tensor, ReportSink& sink) {
  Comparison comparison(Grid::kFp32);
  comparison.AddOther(0, 0, 0.0f, HUGE_VAL);
  sink.Add(tensor.name, comparison);
}

void RequireSpecs(const RecordedTensor& tensor,
                  const formats::Quantization* rowwise,
                  const formats::Quantization* columnwise, ReportSink& sink) {
  if (!SameSpec(tensor.quantized_rowwise, tensor.rowwise, rowwise) ||
      !SameSpec(tensor.quantized_columnwise, tensor.columnwise, columnwise)) {
    ReportMisdeclared(tensor, sink);
  }
}

/// Groups of rows of a site and the ends of their segments, from the batch and
/// the routing.
struct Groups {
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

Groups GroupsOf(const StepInputs& inputs, const LinearSite& site) {
  if (site.of_experts) {
    const ExpertRows& rows = inputs.expert_rows[site.moe_layer];
    Groups groups = {rows.begins, rows.unit_ends};
    if (!groups.ends.empty()) return groups;
    for (size_t e = 0; e < groups.count(); ++e) {
      groups.ends.push_back(rows.begins[e + 1] - rows.begins[e]);
    }
    return groups;
  }
  Groups groups = {{0, inputs.tokens()}, inputs.batch.sequence_ends};
  if (site.token_leaves) {
    groups.ends.clear();
    for (size_t end = 0; end < inputs.tokens();) {
      end = std::min(end + kTokenLeaf, inputs.tokens());
      groups.ends.push_back(end);
    }
  }
  return groups;
}

/// Which rows belong to which group. Segments need not agree: where they matter
/// to MX blocks the values show it, and to sums any order is right.
void RequireRows(const RecordedTensor& tensor, const Groups& groups,
                 ReportSink& sink) {
  const bool same = tensor.begins.empty() ? groups.count() == 1
                                          : tensor.begins == groups.begins;
  if (!same) ReportMisdeclared(tensor, sink);
}

/// Calls use(i, j, estimate) with the dot product of row i of a and row j of b.
template <typename Use>
void ForEachProduct(MatrixView<const float> a, MatrixView<const float> b,
                    const Use& use) {
  Matrix<float> panel;
  std::array<Estimate, kDotLanes> dots;
  for (size_t first = 0; first < b.rows(); first += kDotLanes) {
    PackPanel(b, first, panel);
    const size_t count = std::min(kDotLanes, b.rows() - first);
    for (size_t i = 0; i < a.rows(); ++i) {
      DotPanel(a.Row(i), panel, dots.data());
      for (size_t j = 0; j < count; ++j) use(i, first + j, dots[j]);
    }
  }
}

/// Rows of a stacked weight that belong to one group.
MatrixView<const float> WeightOf(MatrixView<const float> weight, size_t groups,
                                 size_t group) {
  const size_t rows = weight.rows() / groups;
  return weight.Rows(group * rows, rows);
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.ends_with(end);
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
    if (EndsWith(module, ".routed_experts")) {
      const size_t layer = std::stoul(module.substr(sizeof("layers.") - 1));
      site.of_experts = true;
      site.groups = config.num_experts;
      site.moe_layer = layer - config.n_dense_layers;
    }
    if (EndsWith(site.name, ".w3")) site.dgrad_addend = module + ".w1_dgrad";
    if (EndsWith(site.name, ".wkv_a")) {
      site.dgrad_addend =
          module + (config.q_lora_rank == 0 ? ".wq_dgrad" : ".wq_a_dgrad");
    }
    if (EndsWith(site.name, ".router.gate")) {
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
  const GemmPrecision& formats =
      inputs.recipe.For(site.index, GemmRole::kFprop);
  const GemmPrecision& dgrad = inputs.recipe.For(site.index, GemmRole::kDgrad);
  const GemmPrecision& wgrad = inputs.recipe.For(site.index, GemmRole::kWgrad);
  const RecordedTensor& x = inputs.record.At(site.name + "_activation");
  const RecordedTensor& w = inputs.record.At(site.weight);
  const RecordedTensor& y = inputs.record.At(site.name + "_output");
  const Groups groups = GroupsOf(inputs, site);
  RequireSpecs(x, formats.left_operand(), wgrad.right_operand(), sink);
  RequireSpecs(w, formats.right_operand(), dgrad.right_operand(), sink);
  RequireRows(x, groups, sink);
  RequireRows(y, groups, sink);

  const Matrix<float> left =
      QuantizedRows(x.values.view(), formats.left_operand());
  const Matrix<float> right =
      QuantizedRows(w.values.view(), formats.right_operand());
  Comparison comparison(site.output);
  for (size_t g = 0; g < groups.count(); ++g) {
    const size_t begin = groups.begins[g];
    ForEachProduct(groups.RowsOf(left.view(), g),
                   WeightOf(right.view(), site.groups, g),
                   [&](size_t i, size_t j, const Estimate& dot) {
                     comparison.Add(begin + i, j, y.values(begin + i, j), dot);
                   });
  }
  sink.Add(y.name, comparison);
}

void CheckDgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink) {
  const GemmPrecision& formats =
      inputs.recipe.For(site.index, GemmRole::kDgrad);
  const GemmPrecision& wgrad = inputs.recipe.For(site.index, GemmRole::kWgrad);
  const RecordedTensor& dy = inputs.record.At(site.name + "_gradient");
  const RecordedTensor& w = inputs.record.At(site.weight);
  const RecordedTensor& dx = inputs.record.At(site.name + "_dgrad");
  const Groups groups = GroupsOf(inputs, site);
  RequireSpecs(dy, formats.left_operand(), wgrad.left_operand(), sink);
  RequireRows(dy, groups, sink);
  RequireRows(dx, groups, sink);

  const Matrix<float>* addend =
      site.dgrad_addend.empty() ? nullptr
                                : &inputs.record.At(site.dgrad_addend).values;
  const Matrix<float> left =
      QuantizedRows(dy.values.view(), formats.left_operand());
  Comparison comparison(inputs.activations);
  for (size_t g = 0; g < groups.count(); ++g) {
    const size_t begin = groups.begins[g];
    const Matrix<float> right = QuantizedColumns(
        WeightOf(w.values.view(), site.groups, g), formats.right_operand());
    ForEachProduct(
        groups.RowsOf(left.view(), g), right.view(),
        [&](size_t i, size_t j, Estimate dot) {
          const size_t row = begin + i;
          if (addend != nullptr) {
            // Both in FP32, the product rounded like an activation first.
            const Estimate before = {
                .exact = static_cast<double>((*addend)(row, j))};
            dot = Rounded32(RoundedOnTheWay(inputs.activations, dot) + before);
          }
          comparison.Add(row, j, dx.values(row, j), dot);
        });
  }
  sink.Add(dx.name, comparison);
}

void CheckWgrad(const StepInputs& inputs, const LinearSite& site,
                ReportSink& sink) {
  const GemmPrecision& formats =
      inputs.recipe.For(site.index, GemmRole::kWgrad);
  const RecordedTensor& dy = inputs.record.At(site.name + "_gradient");
  const RecordedTensor& x = inputs.record.At(site.name + "_activation");
  const RecordedTensor& dw = inputs.record.At(site.name + "_wgrad");
  const Groups groups = GroupsOf(inputs, site);
  const size_t out = dw.values.rows() / site.groups;
  Comparison comparison(Grid::kFp32);
  for (size_t g = 0; g < groups.count(); ++g) {
    const std::span<const size_t> ends = groups.SegmentsOf(g);
    const Matrix<float> left = QuantizedColumns(
        groups.RowsOf(dy.values.view(), g), formats.left_operand(), ends);
    const Matrix<float> right = QuantizedColumns(
        groups.RowsOf(x.values.view(), g), formats.right_operand(), ends);
    ForEachProduct(left.view(), right.view(),
                   [&](size_t i, size_t j, const Estimate& dot) {
                     const size_t row = g * out + i;
                     comparison.Add(row, j, dw.values(row, j), dot);
                   });
  }
  sink.Add(dw.name, comparison);
}

std::vector<Estimate> WeightGradient(const StepInputs& inputs,
                                     const LinearSite& site) {
  ISOLOSS_ASSERT(site.groups == 1);
  const GemmPrecision& formats =
      inputs.recipe.For(site.index, GemmRole::kWgrad);
  const Groups groups = GroupsOf(inputs, site);
  const Matrix<float> left =
      QuantizedColumns(inputs.Values(site.name + "_gradient"),
                       formats.left_operand(), groups.ends);
  const Matrix<float> right =
      QuantizedColumns(inputs.Values(site.name + "_activation"),
                       formats.right_operand(), groups.ends);
  std::vector<Estimate> result(left.rows() * right.rows());
  ForEachProduct(left.view(), right.view(),
                 [&](size_t i, size_t j, const Estimate& dot) {
                   result[i * right.rows() + j] = dot;
                 });
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

}  // namespace isoloss::oracle
