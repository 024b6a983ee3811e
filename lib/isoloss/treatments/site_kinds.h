// Groups the GEMM sites of a model by kind, and makes recipes that quantise
// some products of some kinds.
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

/// Returns a site's name without its layer: "routed_experts.w1", "lm_head".
/// Queries are one kind, "attention.wq", whether one matrix makes them or two.
/// As a pattern it matches the sites of this kind alone.
std::string KindOf(std::string_view site);

/// Holds the products that a candidate recipe quantises (fprop, dgrad and
/// wgrad of each kind) at every site of a model, whatever its own patterns
/// choose.
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
  /// Returns all products but those of `without`.
  std::vector<size_t> AllBut(std::span<const size_t> without) const;
  /// Returns a product as the speed model takes it.
  estimators::QuantizedProduct Quantized(size_t product) const;
  /// Returns the products that another recipe quantises, in whatever format.
  std::vector<size_t> ProductsOf(const precision::Recipe& recipe) const;
  /// Returns the products of the sites that patterns choose.
  std::vector<size_t> ProductsAt(std::span<const std::string> include,
                                 std::span<const std::string> exclude) const;

  /// Returns the candidate with only these products quantised. Its
  /// quantisation of attention's own products and of norm gains is left out.
  /// Operands that wgrad quantises again are quantised anew if the first
  /// quantisation is left out.
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
