// Defines the graph of a training step, which holds the one list of the model's
// parameters, GEMM sites and tensors. Parameter sets, recipes, logs and judges
// take their names from here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/model/config.h"
#include "isoloss/model/tap.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// The products between the projections are named "layers.N.attention", then
/// kAttentionCore, then one of two endings: scores (S = Q K^T, so x = Q, W = K)
/// or values (O = P V, so x = P, W = V^T).
inline constexpr const char* kAttentionCore = ".inner_attention";
inline constexpr const char* kAttentionScores = ".scores";
inline constexpr const char* kAttentionValues = ".values";

/// Initial values are normal with mean 0 and standard deviation `std`. They are
/// redrawn until they lie within +-cut (an absolute value; infinity: never
/// redrawn). std 0 stands for the constant 1 (norm weights).
struct InitRule {
  double std;
  double cut;
};

/// Describes a trained tensor of the whole model.
struct ParameterSpec {
  std::string name;           ///< torchtitan's: "layers.0.attention.wq.weight"
  std::string module;         ///< its owner: "layers.0.attention.wq"
  std::vector<size_t> shape;  ///< e.g. {8, 48, 64} for w1_EFD
  InitRule init = {};
  /// If this is true, the tensor has one matrix for each routed expert, and a
  /// process may hold a part of them.
  bool of_experts = false;

  /// Return the last two dimensions, which are those of one expert's matrix in
  /// a tensor of experts. A vector has one row.
  size_t rows() const { return shape.size() > 1 ? shape.end()[-2] : 1; }
  size_t cols() const { return shape.back(); }
  size_t groups() const { return of_experts ? shape.front() : 1; }
};

/// A GEMM site is a place where the model multiplies matrices under a recipe.
/// Its name is the module whose tensors are its operands and products.
struct GemmSite {
  std::string name;
  size_t parameter;  ///< place in Graph::parameters; a tied head's is the table
};

/// Says what a row of a tensor stands for.
enum class RowUnit {
  kTokens,        ///< the tokens of a step
  kExpertTokens,  ///< (token, slot) pairs, sorted by expert
  kParameter,     ///< the rows of a parameter
};
std::string_view RowUnitName(RowUnit rows);  ///< "tokens", "expert_tokens", …

struct GraphTensor {
  std::string module;
  TensorKind kind = TensorKind::kOutput;
  RowUnit rows_of = RowUnit::kTokens;
  size_t rows = 0;  ///< if they are a parameter's; 0: as many as the step has
  size_t cols = 0;
  std::string parameter =
      {};  ///< name; the tensor is its weight, gradient, value or update
  std::string site = {};  ///< the site that reads or gives it
  /// This MoE layer's choice of experts orders the tensor's rows or columns, or
  /// decides which of them the tensor sums up.
  std::string moe = {};
  /// The tensor's operation reads these tensors, given as places in
  /// Graph::tensors.
  std::vector<size_t> inputs = {};

  std::string Name() const;  ///< as Tensor::Name()
};

struct Graph {
  std::vector<ParameterSpec> parameters = {};  ///< in torchtitan's order
  std::vector<GemmSite> sites =
      {};  ///< in the order of recipes: a layer's queries come first
  std::vector<GraphTensor> tensors = {};  ///< in the order of announcement

  /// Returns the sites with their widths, which resolving a recipe needs.
  std::vector<precision::Site> Sites() const;
  /// Returns the place of a parameter, which must belong to the model.
  size_t ParameterIndex(std::string_view name) const;
  /// Returns the place of a site.
  /// Errors   ConfigError if the model has no such site.
  size_t SiteIndex(std::string_view name) const;
};

/// Builds the graph of a model; docs/model.md has the formulas.
Graph GraphOf(const ModelConfig& config);

/// Return the parts of the graph that need no walk through a step.
std::vector<ParameterSpec> ParametersOf(const ModelConfig& config);
std::vector<precision::Site> GemmSites(const ModelConfig& config);

}  // namespace isoloss::model
