// Says which format each operand of each GEMM gets.
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

/// A linear layer y = x W^T has these three products.
enum class GemmRole {
  kFprop,  ///< y = x W^T, contracts the input width
  kDgrad,  ///< dx = dy W, contracts the output width
  kWgrad,  ///< dW = dy^T x, contracts tokens
};
inline constexpr GemmRole kGemmRoles[] = {GemmRole::kFprop, GemmRole::kDgrad,
                                          GemmRole::kWgrad};
std::string_view GemmRoleName(GemmRole role);  ///< "fprop", "dgrad", "wgrad"

/// Says how one product is computed. An operand without a value stays in high
/// precision (the recipe's activation type). `left` is x / dy / dy and `right`
/// is W / W / x, in fprop / dgrad / wgrad.
struct GemmPrecision {
  std::optional<formats::Quantization> left;
  std::optional<formats::Quantization> right;
  kernels::Accumulation accumulation = {};
  /// In wgrad, these say that the operand is the one that dgrad (left) or fprop
  /// (right) quantised, quantised once more.
  bool left_again = false;
  bool right_again = false;

  bool quantized() const { return left.has_value() || right.has_value(); }
  bool operator==(const GemmPrecision&) const = default;
  /// Returns the operand as kernels take it: nullptr if nothing is quantised.
  const formats::Quantization* left_operand() const {
    return left ? &*left : nullptr;
  }
  const formats::Quantization* right_operand() const {
    return right ? &*right : nullptr;
  }
};

/// Names an operand, for instance "e4m3·rceil": its element format, its scale
/// mode and everything that is not usual. It is "" for an operand that stays in
/// high precision.
std::string OperandName(const std::optional<formats::Quantization>& operand);

/// Holds the precision of all three products.
struct LinearPrecision {
  GemmPrecision fprop;
  GemmPrecision dgrad;
  GemmPrecision wgrad;

  const GemmPrecision& For(GemmRole role) const;
  GemmPrecision& For(GemmRole role);
  /// True if any product has a quantised operand.
  bool quantizes() const;
  /// True if no product has a quantised operand and all sums are the default
  /// ones.
  bool is_plain() const { return *this == LinearPrecision(); }

  bool operator==(const LinearPrecision&) const = default;
};

/// Says how the products of attention are computed, with P = softmax(Q K^T).
/// They are O = P V and, backward, dV = P^T dO, dP = dO V^T, dQ = dS K and dK =
/// dS^T Q. An operand without a value stays as it is (docs/model.md, section
/// 16).
struct AttentionPrecision {
  std::optional<formats::Quantization> q;
  std::optional<formats::Quantization> k;
  std::optional<formats::Quantization> p;
  std::optional<formats::Quantization> v;
  std::optional<formats::Quantization> d_out;
  std::optional<formats::Quantization> d_scores;

  /// Return the products as those of linear layers: S = Q K^T has x = Q and W =
  /// K, O = P V has x = P and W = V^T. Products of the backward pass are
  /// quantised if their dy, which is dS or dO, has a description.
  LinearPrecision Scores() const;
  LinearPrecision Values() const;
  /// True if any operand has a description.
  bool quantizes() const { return *this != AttentionPrecision(); }

  bool operator==(const AttentionPrecision&) const = default;
};

/// Is an operand of attention, with its key in TOML.
struct AttentionOperand {
  std::string_view key;
  std::optional<formats::Quantization> AttentionPrecision::*operand;
};
inline constexpr AttentionOperand kAttentionOperands[] = {
    {"q", &AttentionPrecision::q},      {"k", &AttentionPrecision::k},
    {"p", &AttentionPrecision::p},      {"v", &AttentionPrecision::v},
    {"do", &AttentionPrecision::d_out}, {"ds", &AttentionPrecision::d_scores}};

/// Replaces the precision that is given to some of a recipe's sites.
struct SiteOverride {
  std::vector<std::string> sites;  ///< patterns
  LinearPrecision precision;

  bool operator==(const SiteOverride&) const = default;
};

/// Says how the sums of a product are made, for instance
/// "hopper_f13·promote128"; it is "" for FP32 chains.
std::string AccumulationName(const kernels::Accumulation& accumulation);

/// Is a named precision recipe: it says which sites are quantised, and how. The
/// recipes of recipes.def are registered, one file each; users write their own
/// as TOML (recipe_file.h).
struct Recipe : LinearPrecision {
  std::string name;
  std::string summary;  ///< one line for lists
  std::string source;   ///< who defines or uses it
  /// kBf16 is torchtitan's BF16 training (docs/model.md, section 9); kFp32 is
  /// all FP32.
  kernels::Rounding activation = kernels::Rounding::kBf16;
  /// The weight gradients of linear layers are rounded like this. They are kept
  /// in FP32 words.
  kernels::Rounding weight_gradients = kernels::Rounding::kFp32;
  /// A site is quantised if its name matches a pattern of `include` and none of
  /// `exclude` (see SiteMatches). A pattern that does nothing is an error
  /// unless it ends in `?`, which says that the model may lack such a site.
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  /// This many layers at either end stay in the activation type.
  size_t first_layers = 0;
  size_t last_layers = 0;
  /// A site also stays in the activation type if one of its widths is no
  /// multiple of this.
  size_t width_multiple = 1;
  /// An override applies to quantised sites; the first that matches decides.
  std::vector<SiteOverride> overrides;
  /// This applies to all layers, whatever the patterns say.
  AttentionPrecision attention = {};
  /// The gains of all norms are quantised like this where they multiply,
  /// forward and in dx. Blocks lie along the gains. The gradient is that of the
  /// unquantised gains.
  std::optional<formats::Quantization> norm_gains = {};

  /// True if any product of any site has a quantised operand.
  bool quantizes() const;
  /// True if products of any site are not plain, so that sites are chosen.
  bool chooses_sites() const;
  /// True if quantizes() is, or if attention or gains of norms are quantised.
  bool quantizes_anything() const;

  /// Compares everything but names and texts.
  bool SameContent(const Recipe& other) const;
};

/// A recipe has at most this many patterns, and a pattern at most this many
/// characters, because a file may be made to be slow.
inline constexpr size_t kMaxPatterns = 1000;
inline constexpr size_t kMaxPatternLength = 1000;

/// True if `pattern` occurs in `site`. A `*` in a pattern stands for any run of
/// characters; a `?` at its end is no part of it. ("attention" and
/// "layers.0.*.wq" match "layers.0.attention.wq".)
bool SiteMatches(std::string_view pattern, std::string_view site);
/// Returns the first pattern that matches `site`, or nullptr.
const std::string* FirstMatch(std::span<const std::string> patterns,
                              std::string_view site);

/// Says what is wrong with a product's description, in words that follow "it";
/// "" if nothing is. It finds operands with different transforms, scales that
/// change within a piece, a second quantisation without a first one, and an
/// accumulator with operands that it does not multiply.
std::string WrongPrecision(const GemmPrecision& precision, GemmRole role);

/// Say the same of a description in [attention] or of norm gains. Delayed
/// scaling and transforms are also wrong there, because they have no meaning.
std::string WrongAttention(const AttentionPrecision& precision);
std::string WrongNormGains(const formats::Quantization& gains);

/// Returns all registered recipes, in the order of recipes.def.
std::vector<const Recipe*> AllRecipes();
/// Errors   ConfigError that lists the names and suggests the nearest.
const Recipe& RecipeByName(std::string_view name);

/// Is a linear layer of a model.
struct Site {
  std::string name;  ///< parameter name without ".weight"
  size_t in = 0;     ///< widths
  size_t out = 0;
};

/// Says what one GEMM site got, and why.
struct ResolvedSite {
  static constexpr size_t kOfRecipe = static_cast<size_t>(-1);

  std::string site;  ///< parameter name without ".weight"
  bool quantized = false;
  std::string reason;  ///< e.g. "included by `attention`", "excluded by `wo`"
  /// This is the number of the recipe's override that the site got, or
  /// kOfRecipe if it got none.
  size_t override_index = kOfRecipe;
  /// True if patterns select the site, but the recipe's layers or widths leave
  /// it as it is.
  bool kept = false;
};

/// Applies a recipe to the GEMM sites of one model.
class ResolvedRecipe {
 public:
  /// Errors   ConfigError if a recipe that quantises something selects no site,
  ///          or if no site gets what an override gives. It is also thrown if
  ///          a pattern of `include` selects no site or one of `exclude`
  ///          matches none, unless the pattern ends in `?`. (A converter that
  ///          silently matched nothing was a real bug: torchtitan 3199.)
  ///          Further errors are more or longer patterns than the limits
  ///          above, and patterns of a recipe that quantises nothing. So are
  ///          wrong descriptions of a product (WrongPrecision), of attention
  ///          or of norm gains.
  ResolvedRecipe(const Recipe& recipe, std::span<const Site> sites);
  /// The widths of these sites are unknown, so that no width is an obstacle.
  ResolvedRecipe(const Recipe& recipe, std::span<const std::string> sites);

  const Recipe& recipe() const { return recipe_; }
  std::span<const ResolvedSite> sites() const { return sites_; }

  /// Returns the precision of one product of site number `site`.
  const GemmPrecision& For(size_t site, GemmRole role) const;
  /// Returns the number of (site, role) pairs with a quantised operand.
  size_t quantized_gemms() const;
  /// Writes one line per site, which is stored in the log: its name, what the
  /// operands of each product got, and why. Attention and norm gains have a
  /// line each if they are quantised. For instance
  ///   lm_head  fprop bf16 x bf16  dgrad bf16 x bf16  wgrad bf16 x bf16
  ///   (excluded by `lm_head`)
  std::string Describe() const;

 private:
  Recipe recipe_;
  std::vector<ResolvedSite> sites_;
};

}  // namespace isoloss::precision
