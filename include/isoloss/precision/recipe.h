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
  bool operator==(const GemmPrecision&) const = default;
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

/// Three products.
struct LinearPrecision {
  GemmPrecision fprop;
  GemmPrecision dgrad;
  GemmPrecision wgrad;

  const GemmPrecision& For(GemmRole role) const;
  GemmPrecision& For(GemmRole role);
  /// True if any product has a quantised operand.
  bool quantizes() const;
  /// True if products neither quantise nor sum in a way of their own.
  bool is_plain() const { return *this == LinearPrecision(); }

  bool operator==(const LinearPrecision&) const = default;
};

/// How the products of attention are computed, with P = softmax(Q K^T):
/// O = P V, and backward dV = P^T dO, dP = dO V^T, dQ = dS K, dK = dS^T Q. An
/// operand without a value stays as it is (docs/model.md, section 16).
struct AttentionPrecision {
  std::optional<formats::Quantization> q;
  std::optional<formats::Quantization> k;
  std::optional<formats::Quantization> p;
  std::optional<formats::Quantization> v;
  std::optional<formats::Quantization> d_out;
  std::optional<formats::Quantization> d_scores;

  /// The products as those of linear layers: S = Q K^T has x = Q and W = K,
  /// O = P V has x = P and W = V^T. Products of the backward pass are quantised
  /// where their dy, which is dS or dO, has a description.
  LinearPrecision Scores() const;
  LinearPrecision Values() const;
  /// True if any operand has a description.
  bool quantizes() const { return *this != AttentionPrecision(); }

  bool operator==(const AttentionPrecision&) const = default;
};

/// An operand of attention, by its key in TOML.
struct AttentionOperand {
  std::string_view key;
  std::optional<formats::Quantization> AttentionPrecision::*operand;
};
inline constexpr AttentionOperand kAttentionOperands[] = {
    {"q", &AttentionPrecision::q},      {"k", &AttentionPrecision::k},
    {"p", &AttentionPrecision::p},      {"v", &AttentionPrecision::v},
    {"do", &AttentionPrecision::d_out}, {"ds", &AttentionPrecision::d_scores}};

/// What some of a recipe's sites get instead.
struct SiteOverride {
  std::vector<std::string> sites;  ///< patterns
  LinearPrecision precision;

  bool operator==(const SiteOverride&) const = default;
};

/// "hopper_f13·promote128": how sums of a product are made; "" of FP32 chains.
std::string AccumulationName(const kernels::Accumulation& accumulation);

/// A named precision recipe: what its sites get, and which those are. Those of
/// recipes.def are registered, one file each; users write theirs as TOML
/// (recipe_file.h).
struct Recipe : LinearPrecision {
  std::string name;
  std::string summary;  ///< one line for lists
  std::string source;   ///< who defines or uses it
  /// kBf16: torchtitan's BF16 training (docs/model.md, section 9). kFp32: all
  /// FP32.
  kernels::Rounding activation = kernels::Rounding::kBf16;
  /// Of the weight gradients of linear layers, which are kept in FP32 words.
  kernels::Rounding weight_gradients = kernels::Rounding::kFp32;
  /// Sites that are quantised: those whose name matches a pattern of `include`
  /// and none of `exclude` (see SiteMatches). A pattern that does nothing is an
  /// error, unless it ends in `?`: that says the model may lack such a site.
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  /// So many layers at either end stay as the activation type has them.
  size_t first_layers = 0;
  size_t last_layers = 0;
  /// Sites stay as well if a width of theirs is no multiple of it.
  size_t width_multiple = 1;
  /// Of the sites that are quantised; the first that matches decides.
  std::vector<SiteOverride> overrides;
  /// Of all layers, whatever the patterns say.
  AttentionPrecision attention = {};
  /// Of the gains of all norms, where they multiply, forward and in dx; blocks
  /// lie along the gains. Their gradient is that of the unquantised ones.
  std::optional<formats::Quantization> norm_gains = {};

  /// True if any product of any site has a quantised operand.
  bool quantizes() const;
  /// True if products of any site are not plain, so that sites are chosen.
  bool chooses_sites() const;
  /// The same, or if attention or gains of norms are quantised.
  bool quantizes_anything() const;

  /// Names and texts aside.
  bool SameContent(const Recipe& other) const;
};

/// The most patterns that a recipe has, and characters that a pattern has: a
/// file may be made to be slow.
inline constexpr size_t kMaxPatterns = 1000;
inline constexpr size_t kMaxPatternLength = 1000;

/// True if `pattern` occurs in `site`; `*` in a pattern stands for any run of
/// characters, a `?` at its end is no part of it. ("attention" and
/// "layers.0.*.wq" match "layers.0.attention.wq".)
bool SiteMatches(std::string_view pattern, std::string_view site);
/// First pattern that matches `site`, or nullptr.
const std::string* FirstMatch(std::span<const std::string> patterns,
                              std::string_view site);

/// What is wrong with a product's description, in words that follow "it"; "" if
/// nothing: operands of which one is transformed, scales that change within a
/// piece, a second quantisation without a first one, an accumulator of FP8 with
/// other operands.
std::string WrongPrecision(const GemmPrecision& precision, GemmRole role);

/// The same of a description in [attention] or of norm gains: besides what is
/// wrong with any, delayed scaling and transforms, which have no meaning there.
std::string WrongAttention(const AttentionPrecision& precision);
std::string WrongNormGains(const formats::Quantization& gains);

/// All registered recipes, in the order of recipes.def.
std::vector<const Recipe*> AllRecipes();
/// Errors   ConfigError that lists the names and suggests the nearest.
const Recipe& RecipeByName(std::string_view name);

/// A linear layer of a model.
struct Site {
  std::string name;  ///< parameter name without ".weight"
  size_t in = 0;     ///< widths
  size_t out = 0;
};

/// What one GEMM site got, and why.
struct ResolvedSite {
  static constexpr size_t kOfRecipe = static_cast<size_t>(-1);

  std::string site;  ///< parameter name without ".weight"
  bool quantized = false;
  std::string reason;  ///< e.g. "included by `attention`", "excluded by `wo`"
  /// Which of the recipe's overrides it got; kOfRecipe: none.
  size_t override_index = kOfRecipe;
  /// Patterns select it, but the recipe's layers or widths leave it as it is.
  bool kept = false;
};

/// A recipe applied to the GEMM sites of one model.
class ResolvedRecipe {
 public:
  /// Errors   ConfigError if a recipe that quantises something selects no site;
  ///          if a pattern of `include` selects none or one of `exclude`
  ///          matches none, and it doesn't end in `?` (a converter that
  ///          silently matched nothing was a real bug: torchtitan 3199), or if
  ///          no site gets what an override gives; if there are more patterns,
  ///          or longer ones, than the limits above; if
  ///          patterns are given to a recipe that quantises nothing; if a
  ///          product's description is wrong (WrongPrecision), or that of
  ///          attention or norm gains.
  ResolvedRecipe(const Recipe& recipe, std::span<const Site> sites);
  /// Of sites whose widths nobody knows: no width is an obstacle.
  ResolvedRecipe(const Recipe& recipe, std::span<const std::string> sites);

  const Recipe& recipe() const { return recipe_; }
  std::span<const ResolvedSite> sites() const { return sites_; }

  /// The precision of one product of site number `site`.
  const GemmPrecision& For(size_t site, GemmRole role) const;
  /// Number of (site, role) pairs with a quantised operand.
  size_t quantized_gemms() const;
  /// One line per site: name, what the operands of each product got, and why;
  /// and one each of attention and norm gains if they are quantised. Stored in
  /// the log. For instance
  ///   lm_head  fprop bf16 x bf16  dgrad bf16 x bf16  wgrad bf16 x bf16
  ///   (excluded by `lm_head`)
  std::string Describe() const;

 private:
  Recipe recipe_;
  std::vector<ResolvedSite> sites_;
};

}  // namespace isoloss::precision
