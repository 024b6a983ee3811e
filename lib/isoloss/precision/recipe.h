// Which format each operand of each GEMM gets.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/formats/quantization.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::precision {

/// The three products of a linear layer y = x W^T.
enum class GemmRole {
  kFprop,  ///< y = x W^T, contracts the input width
  kDgrad,  ///< dx = dy W, contracts the output width
  kWgrad,  ///< dW = dy^T x, contracts tokens
};
inline constexpr GemmRole kGemmRoles[] = {GemmRole::kFprop, GemmRole::kDgrad,
                                          GemmRole::kWgrad};
std::string_view GemmRoleName(GemmRole role);  ///< "fprop", "dgrad", "wgrad"

/// How one product is computed. An operand without a value stays in high
/// precision (the recipe's activation type). Left is x / dy / dy, right is
/// W / W / x.
struct GemmPrecision {
  std::optional<formats::Quantization> left;
  std::optional<formats::Quantization> right;
  kernels::Accumulation accumulation = {};
  /// Of wgrad: the operand is what dgrad (left) or fprop (right) made of it,
  /// quantised once more.
  bool left_again = false;
  bool right_again = false;

  bool quantized() const { return left.has_value() || right.has_value(); }
  /// As kernels take them: nullptr where nothing is quantised.
  const formats::Quantization* left_operand() const {
    return left ? &*left : nullptr;
  }
  const formats::Quantization* right_operand() const {
    return right ? &*right : nullptr;
  }
};

/// "e4m3·rceil": element format, scale mode and what else is not usual; "" of
/// an operand that stays in high precision.
std::string OperandName(const std::optional<formats::Quantization>& operand);

/// A named precision recipe. Registered in recipes.def; one file each.
struct Recipe {
  std::string name;
  std::string summary;  ///< one line for lists
  std::string source;   ///< who defines or uses it
  /// kBf16: torchtitan's BF16 training (docs/model.md, section 9). kFp32: all
  /// FP32.
  kernels::Rounding activation = kernels::Rounding::kBf16;
  GemmPrecision fprop;
  GemmPrecision dgrad;
  GemmPrecision wgrad;
  /// Of the weight gradients of linear layers, which are kept in FP32 words.
  kernels::Rounding weight_gradients = kernels::Rounding::kFp32;
  /// Sites that are quantised: those whose name matches a pattern of `include`
  /// and none of `exclude` (see SiteMatches). A pattern that does nothing is an
  /// error, unless it ends in `?`: that says the model may lack such a site.
  std::vector<std::string> include;
  std::vector<std::string> exclude;

  const GemmPrecision& For(GemmRole role) const;
  /// True if any product has a quantised operand.
  bool quantizes() const;
};

/// True if `pattern` occurs in `site`; `*` in a pattern stands for any run of
/// characters, a `?` at its end is no part of it. ("attention" and
/// "layers.0.*.wq" match "layers.0.attention.wq".)
bool SiteMatches(std::string_view pattern, std::string_view site);
/// First pattern that matches `site`, or nullptr.
const std::string* FirstMatch(std::span<const std::string> patterns,
                              std::string_view site);

/// All registered recipes, in the order of recipes.def.
std::vector<const Recipe*> AllRecipes();
/// Errors   ConfigError that lists the names and suggests the nearest.
const Recipe& RecipeByName(std::string_view name);

/// What one GEMM site got, and why.
struct ResolvedSite {
  std::string site;  ///< parameter name without ".weight"
  bool quantized = false;
  std::string reason;  ///< e.g. "included by `attention`", "excluded by `wo`"
};

/// A recipe applied to the GEMM sites of one model.
class ResolvedRecipe {
 public:
  /// Errors   ConfigError if a recipe that quantises something selects no site;
  ///          if a pattern of `include` selects none or one of `exclude`
  ///          matches none, and it doesn't end in `?` (a converter that
  ///          silently matched nothing was a real bug: torchtitan 3199); if
  ///          patterns are given to a recipe that quantises nothing.
  ResolvedRecipe(const Recipe& recipe, std::span<const std::string> sites);

  const Recipe& recipe() const { return recipe_; }
  std::span<const ResolvedSite> sites() const { return sites_; }

  /// The precision of one product of site number `site`.
  const GemmPrecision& For(size_t site, GemmRole role) const;
  /// Number of (site, role) pairs with a quantised operand.
  size_t quantized_gemms() const;
  /// One line per site: name, what the operands of each product got, and why;
  /// stored in the log. For instance
  ///   lm_head  fprop bf16 x bf16  dgrad bf16 x bf16  wgrad bf16 x bf16
  ///   (excluded by `lm_head`)
  std::string Describe() const;

 private:
  Recipe recipe_;
  std::vector<ResolvedSite> sites_;
};

}  // namespace isoloss::precision
