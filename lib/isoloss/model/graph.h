// What a training step computes from what: the one list of the model's
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

/// Behind "layers.N.attention": the products between the projections. Behind
/// these: S = Q K^T with x = Q, W = K; and O = P V with x = P, W = V^T.
inline constexpr const char* kAttentionCore = ".inner_attention";
inline constexpr const char* kAttentionScores = ".scores";
inline constexpr const char* kAttentionValues = ".values";

/// Normal with mean 0 and the given standard deviation, redrawn until it lies
/// within +-cut (an absolute value; infinity: never redrawn). std 0 stands for
/// the constant 1 (norm weights).
struct InitRule {
  double std;
  double cut;
};

/// A trained tensor of the whole model.
struct ParameterSpec {
  std::string name;           ///< torchtitan's: "layers.0.attention.wq.weight"
  std::string module;         ///< that it belongs to: "layers.0.attention.wq"
  std::vector<size_t> shape;  ///< e.g. {8, 48, 64} for w1_EFD
  InitRule init = {};
  /// One matrix for each routed expert, of which a process may hold a part.
  bool of_experts = false;

  /// Of all but the last dimension, and the last one. Of one expert's matrix,
  /// if it is of experts.
  size_t rows() const { return shape.size() > 1 ? shape.end()[-2] : 1; }
  size_t cols() const { return shape.back(); }
  size_t groups() const { return of_experts ? shape.front() : 1; }
};

/// A place where the model multiplies matrices under a recipe. Its name is the
/// module whose tensors are its operands and products.
struct GemmSite {
  std::string name;
  size_t parameter;  ///< place in Graph::parameters; a tied head's is the table
};

/// What the rows of a tensor stand for.
enum class RowUnit {
  kTokens,        ///< the tokens of a step
  kExpertTokens,  ///< (token, slot) pairs, sorted by expert
  kParameter,     ///< those of a parameter
};
std::string_view RowUnitName(RowUnit rows);  ///< "tokens", "expert_tokens", …

/// One tensor of a training step.
struct GraphTensor {
  std::string module;
  TensorKind kind = TensorKind::kOutput;
  RowUnit rows_of = RowUnit::kTokens;
  size_t rows = 0;  ///< of a parameter's; 0: as many as the step has
  size_t cols = 0;
  std::string parameter =
      {};                 ///< whose weight, gradient, value or update it is
  std::string site = {};  ///< that reads or gives it
  /// The MoE layer whose choice of experts orders its rows or columns, or
  /// decides which of them it sums up.
  std::string moe = {};
  /// The tensors that its operation reads, as places in Graph::tensors.
  std::vector<size_t> inputs = {};

  std::string Name() const;  ///< as Tensor::Name()
};

struct Graph {
  std::vector<ParameterSpec> parameters = {};  ///< in torchtitan's order
  std::vector<GemmSite> sites =
      {};  ///< as recipes list them: of a layer queries first
  std::vector<GraphTensor> tensors = {};  ///< in the order of announcement

  /// With their widths, as recipes are resolved on.
  std::vector<precision::Site> Sites() const;
  /// Place of a parameter, which must be one of the model's.
  size_t ParameterIndex(std::string_view name) const;
  /// Place of a site. Errors   ConfigError if the model has no such site.
  size_t SiteIndex(std::string_view name) const;
};

/// docs/model.md has the formulas.
Graph GraphOf(const ModelConfig& config);

/// The part of it that needs no walk through a step.
std::vector<ParameterSpec> ParametersOf(const ModelConfig& config);
std::vector<precision::Site> GemmSites(const ModelConfig& config);

}  // namespace isoloss::model
