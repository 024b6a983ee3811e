#include "isoloss/probes/graph_columns.h"

#include <limits>
#include <map>
#include <string>
#include <string_view>

namespace isoloss::probes {
namespace {

/// Behind operands that were quantised before.
const std::string kAgain = " again";

/// Of the left operand, with how the product's sums are made. Nothing of what
/// is not quantised: such products count as plain ones.
std::string LeftName(const precision::GemmPrecision& product) {
  if (!product.left) return "";
  const std::string sums = precision::AccumulationName(product.accumulation);
  return precision::OperandName(product.left) +
         (product.left_again ? kAgain : "") +
         (sums.empty() ? "" : " in " + sums);
}

void AppendTensor(const model::GraphTensor& tensor,
                  const model::InitRule& initial,
                  runlog::GraphColumns& columns) {
  columns.name.push_back(tensor.Name());
  columns.module.push_back(tensor.module);
  columns.kind.emplace_back(model::TensorKindName(tensor.kind));
  columns.phase.emplace_back(runlog::PhaseOfKind(columns.kind.back()));
  columns.parameter.push_back(tensor.parameter);
  columns.site.push_back(tensor.site);
  columns.moe.push_back(tensor.moe);
  columns.rows_of.emplace_back(model::RowUnitName(tensor.rows_of));
  columns.rows.push_back(static_cast<int64_t>(tensor.rows));
  columns.columns.push_back(static_cast<int64_t>(tensor.cols));
  columns.initial_std.push_back(initial.std);
  columns.initial_cut.push_back(initial.cut);
}

}  // namespace

runlog::ModelGraph ColumnsOf(const model::Graph& graph,
                             const precision::ResolvedRecipe& recipe) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::map<std::string_view, model::InitRule> initial;
  for (const model::ParameterSpec& parameter : graph.parameters) {
    initial.emplace(parameter.name, parameter.init);
  }
  runlog::ModelGraph columns;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const model::GraphTensor& tensor = graph.tensors[i];
    const bool is_weight = tensor.kind == model::TensorKind::kWeight;
    AppendTensor(tensor,
                 is_weight ? initial.at(tensor.parameter)
                           : model::InitRule{kNone, kNone},
                 columns.tensors);
    for (const size_t input : tensor.inputs) {
      columns.inputs.tensor.push_back(static_cast<int64_t>(i));
      columns.inputs.input.push_back(static_cast<int64_t>(input));
    }
  }
  for (size_t i = 0; i < graph.sites.size(); ++i) {
    const model::GemmSite& site = graph.sites[i];
    const auto& fprop = recipe.For(i, precision::GemmRole::kFprop);
    const auto& dgrad = recipe.For(i, precision::GemmRole::kDgrad);
    const auto& wgrad = recipe.For(i, precision::GemmRole::kWgrad);
    runlog::RecipeColumns& to = columns.recipe;
    to.site.push_back(site.name);
    to.groups.push_back(
        static_cast<int64_t>(graph.parameters[site.parameter].groups()));
    to.fprop_x.push_back(LeftName(fprop));
    to.fprop_w.push_back(precision::OperandName(fprop.right));
    to.dgrad_dy.push_back(LeftName(dgrad));
    to.dgrad_w.push_back(precision::OperandName(dgrad.right));
    to.wgrad_dy.push_back(LeftName(wgrad));
    to.wgrad_x.push_back(precision::OperandName(wgrad.right) +
                         (wgrad.right_again ? kAgain : ""));
  }
  return columns;
}

}  // namespace isoloss::probes
