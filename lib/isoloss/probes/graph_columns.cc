#include "isoloss/probes/graph_columns.h"

#include <limits>
#include <map>
#include <string>
#include <string_view>

namespace isoloss::probes {
namespace {

/// The name of an operand that was quantised before ends with this.
const std::string kAgain = " again";

/// Returns the name of the left operand and of the way the product is summed.
std::string LeftName(const precision::GemmPrecision& product) {
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

void AppendProducts(const std::string& site, size_t groups,
                    const precision::LinearPrecision& products,
                    runlog::RecipeColumns& to) {
  to.site.push_back(site);
  to.groups.push_back(static_cast<int64_t>(groups));
  to.fprop_x.push_back(LeftName(products.fprop));
  to.fprop_w.push_back(precision::OperandName(products.fprop.right));
  to.dgrad_dy.push_back(LeftName(products.dgrad));
  to.dgrad_w.push_back(precision::OperandName(products.dgrad.right));
  to.wgrad_dy.push_back(LeftName(products.wgrad));
  to.wgrad_x.push_back(precision::OperandName(products.wgrad.right) +
                       (products.wgrad.right_again ? kAgain : ""));
}

/// Adds products of attention and norms, if the recipe quantises them. A norm
/// is a product whose W is diagonal.
void AppendOutsideSites(const model::Graph& graph,
                        const precision::Recipe& recipe,
                        runlog::RecipeColumns& to) {
  for (const model::GraphTensor& tensor : graph.tensors) {
    if (!recipe.attention.quantizes() ||
        tensor.kind != model::TensorKind::kOutput ||
        !tensor.module.ends_with(model::kAttentionCore)) {
      continue;
    }
    AppendProducts(tensor.module + model::kAttentionScores, 1,
                   recipe.attention.Scores(), to);
    AppendProducts(tensor.module + model::kAttentionValues, 1,
                   recipe.attention.Values(), to);
  }
  for (const model::ParameterSpec& parameter : graph.parameters) {
    if (!recipe.norm_gains || parameter.shape.size() > 1) continue;
    precision::LinearPrecision products;
    products.fprop.right = products.dgrad.right = recipe.norm_gains;
    AppendProducts(parameter.module, 1, products, to);
  }
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
    AppendProducts(site.name, graph.parameters[site.parameter].groups(),
                   {recipe.For(i, precision::GemmRole::kFprop),
                    recipe.For(i, precision::GemmRole::kDgrad),
                    recipe.For(i, precision::GemmRole::kWgrad)},
                   columns.recipe);
    if (recipe.recipe().weight_gradients == kernels::Rounding::kBf16) {
      columns.recipe.wgrad_dy.back() += runlog::kRoundedGradient;
    }
  }
  AppendOutsideSites(graph, recipe.recipe(), columns.recipe);
  return columns;
}

}  // namespace isoloss::probes
