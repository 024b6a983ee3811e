// The GEMM sites of a model by kind, and recipes that quantise some products of
// some kinds.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/estimators/speed_model.h"
#include "isoloss/model/config.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::treatments {

/// A site's name without its layer: "routed_experts.w1", "lm_head". Queries are
/// one kind, "attention.wq", whether one matrix makes them or two. As a pattern
/// it matches the sites of the kind and no others.
std::string KindOf(std::string_view site);

/// The products that a candidate recipe quantises (fprop, dgrad and wgrad of
/// each kind), at every site of a model, whatever its own patterns choose.
class SiteProducts {
 public:
  struct Entry {
    std::string kind;
    precision::GemmRole role;
  };

  /// Errors   as precision::ResolvedRecipe; ConfigError if the candidate
  ///          quantises no product, or not alike in all layers of a kind.
  SiteProducts(const precision::Recipe& candidate,
               const model::ModelConfig& model);

  std::span<const Entry> products() const { return products_; }
  /// All of them, but those of `without`.
  std::vector<size_t> AllBut(std::span<const size_t> without) const;
  /// As the speed model takes it.
  estimators::QuantizedProduct Quantized(size_t product) const;
  /// The products that another recipe quantises, in whatever format.
  std::vector<size_t> ProductsOf(const precision::Recipe& recipe) const;
  /// The products of the sites that patterns choose.
  std::vector<size_t> ProductsAt(std::span<const std::string> include,
                                 std::span<const std::string> exclude) const;

  /// The candidate with only these products quantised. What it does besides, to
  /// attention's own products and norm gains, is left out; operands of wgrad
  /// that it quantises again are quantised anew if they are not there to be.
  precision::Recipe RecipeOf(std::span<const size_t> products,
                             const std::string& name) const;

 private:
  struct Kind {
    std::string name;
    precision::LinearPrecision precision;
  };
  const precision::LinearPrecision& PrecisionOf(const std::string& kind) const;

  precision::Recipe candidate_;
  std::vector<precision::Site> sites_;
  std::vector<Kind> kinds_;  ///< that the candidate quantises
  std::vector<Entry> products_;
};

}  // namespace isoloss::treatments
