#include "isoloss/step_checks/known_recipes.h"

#include <algorithm>
#include <optional>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/oracle/scalar_product.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::step_checks {
namespace {

using formats::Cell;
using formats::NonFinitePolicy;
using formats::ScaleFormat;
using formats::ScaleRule;
using formats::Scaling;
using formats::Transform;

using Activation = decltype(precision::Recipe::activation);

/// The tables below name these formats; an operand without an element is not
/// quantised.
struct OperandFormat {
  const char* element = nullptr;
  ScaleRule rule = ScaleRule::kRceil;
  ScaleFormat scale = ScaleFormat::kE8m0;
  Cell cell = {1, 32};
  NonFinitePolicy non_finite = NonFinitePolicy::kBlockNan;
  Scaling scaling = Scaling::kCurrent;
  int history = 0;
  int random_bits = 0;  ///< 0: to nearest even
  Transform transform = Transform::kNone;

  std::optional<formats::Quantization> Spec() const {
    if (element == nullptr) return std::nullopt;
    return formats::Quantization{
        .element = &formats::FormatByName(element),
        .scale_rule = rule,
        .non_finite = non_finite,
        .scale_format = scale,
        .scaling = scaling,
        .cell = cell,
        .rounding = random_bits > 0 ? formats::RoundingMode::kStochastic
                                    : formats::RoundingMode::kNearestEven,
        .random_bits = random_bits,
        .transform = transform,
        .history = history};
  }
};

constexpr OperandFormat kHigh = {};

// ---- MX, of torchao and the OCP's text -------------------------------------

constexpr OperandFormat kE4m3 = {"e4m3", ScaleRule::kRceil};
constexpr OperandFormat kE4m3Floor = {"e4m3", ScaleRule::kFloor};
constexpr OperandFormat kE5m2 = {"e5m2", ScaleRule::kRceil};
constexpr OperandFormat kE3m2 = {"e3m2", ScaleRule::kRceil};
constexpr OperandFormat kE2m3 = {"e2m3", ScaleRule::kRceil};
constexpr OperandFormat kE2m1Floor = {"e2m1", ScaleRule::kFloor};
constexpr OperandFormat kE2m1Random = {
    .element = "e2m1",
    .random_bits = 16,
    .transform = Transform::kHadamard16Random};

// ---- TransformerEngine -----------------------------------------------------

constexpr NonFinitePolicy kTe = NonFinitePolicy::kTe;
constexpr OperandFormat kTeMx = {.element = "e4m3", .non_finite = kTe};
constexpr OperandFormat kTeMxSquare = {
    .element = "e4m3", .cell = {32, 32}, .non_finite = kTe};

constexpr OperandFormat OfTensor(const char* element,
                                 Scaling scaling = Scaling::kCurrent,
                                 int history = 0) {
  return {element, ScaleRule::kTe, ScaleFormat::kFp32, {0, 0}, kTe,
          scaling, history};
}
constexpr OperandFormat kTensorE4m3 = OfTensor("e4m3");
constexpr OperandFormat kTensorE5m2 = OfTensor("e5m2");
constexpr OperandFormat kDelayedE4m3 =
    OfTensor("e4m3", Scaling::kDelayed, 1024);
constexpr OperandFormat kDelayedE5m2 =
    OfTensor("e5m2", Scaling::kDelayed, 1024);

constexpr OperandFormat Nvfp4(size_t rows, int random_bits = 0,
                              Transform transform = Transform::kNone) {
  return {"e2m1",   ScaleRule::kTe,     ScaleFormat::kE4m3, {rows, 16},
          kTe,      Scaling::kTwoLevel, /*history=*/0,      random_bits,
          transform};
}
constexpr OperandFormat kFp4 = Nvfp4(1);
constexpr OperandFormat kFp4Square = Nvfp4(16);
constexpr OperandFormat kFp4Random = Nvfp4(1, 8);
constexpr OperandFormat kFp4Turned = Nvfp4(1, 0, Transform::kHadamard16Te);
constexpr OperandFormat kFp4RandomTurned =
    Nvfp4(1, 8, Transform::kHadamard16Te);

// ---- DeepSeek-V3 and torchao's FP8 -----------------------------------------

constexpr OperandFormat kTile = {
    "e4m3", ScaleRule::kDeepgemm, ScaleFormat::kFp32, {1, 128}, kTe};
constexpr OperandFormat kSquare = {
    "e4m3", ScaleRule::kDeepgemm, ScaleFormat::kFp32, {128, 128}, kTe};
constexpr OperandFormat kRow = {
    "e4m3", ScaleRule::kTorchao, ScaleFormat::kPow2, {1, 0}, kTe};

// Members are in the order in which recipes are written; there are few.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct KnownRecipe {
  const char* name;
  Activation activation;
  // These are the left and right operands of y = x W^T, dx = dy W, dW = dy^T x.
  OperandFormat x = kHigh, weight = kHigh;
  OperandFormat dy_of_dgrad = kHigh, weight_of_dgrad = kHigh;
  OperandFormat dy_of_wgrad = kHigh, x_of_wgrad = kHigh;
  /// Sums are promoted every `interval` steps; 0 means never.
  size_t interval = 0;
  /// wgrad quantises x again as fprop left it.
  bool x_again = false;
  size_t last_layers = 0;
};

/// Returns a recipe in BF16 that quantises x, weights and dy alike in all
/// products.
constexpr KnownRecipe Known(const char* name, const OperandFormat& x,
                            const OperandFormat& weight,
                            const OperandFormat& dy) {
  return {name, Activation::kBf16, x, weight, dy, weight, dy, x};
}
constexpr KnownRecipe Known(const char* name, const OperandFormat& all) {
  return Known(name, all, all, all);
}
constexpr KnownRecipe Deepseek(const char* name, const OperandFormat& dy) {
  KnownRecipe recipe = Known(name, kTile, kSquare, dy);
  recipe.interval = 128;
  recipe.x_again = true;
  return recipe;
}

constexpr KnownRecipe kKnown[] = {
    {"fp32", Activation::kFp32},
    {"bf16", Activation::kBf16},
    Known("mxfp8_rceil", kE4m3),
    {"mxfp8_rceil_wgrad_with_hp", Activation::kBf16, kE4m3, kE4m3, kE4m3, kE4m3,
     kHigh, kHigh},
    Known("mxfp8_floor", kE4m3Floor),
    Known("mxfp8_e5m2_grads", kE4m3, kE4m3, kE5m2),
    Known("mxfp4_floor", kE2m1Floor),
    Known("mxfp8_cublas", kE4m3Floor),
    Known("mxfp8_cublas_rceil", kE4m3),
    Known("mxfp6_e3m2", kE3m2),
    Known("mxfp6_e2m3", kE2m3),
    {"mxfp4_rht_sr", Activation::kBf16, kE4m3, kE4m3, kE2m1Random, kE2m1Random,
     kE2m1Random, kE2m1Random},
    Known("te_mxfp8", kTeMx),
    Known("te_mxfp8_2d", kTeMx, kTeMxSquare, kTeMx),
    Known("te_fp8_delayed", kDelayedE4m3, kDelayedE4m3, kDelayedE5m2),
    Known("te_fp8_current", kTensorE4m3, kTensorE4m3, kTensorE5m2),
    {"te_nvfp4", Activation::kBf16, kFp4, kFp4Square, kFp4Random, kFp4Square,
     kFp4RandomTurned, kFp4Turned, /*interval=*/0, /*x_again=*/false,
     /*last_layers=*/1},
    Deepseek("deepseek_v3_fp8", kTile),
    Deepseek("deepseek_v3_fp8_block_grads", kSquare),
    Known("fp8_rowwise", kRow),
};

/// Returns numbers that no format holds, so that each is scaled and rounded.
Matrix<float> Trial() {
  Matrix<float> trial(1, 256);
  for (size_t k = 0; k < trial.cols(); ++k) {
    trial(0, k) = 1.0f + static_cast<float>(k) / 3.0f;
  }
  return trial;
}

/// Throws if the checks of a step would throw.
void Try(const precision::ResolvedRecipe& resolved) {
  const Matrix<float> trial = Trial();
  const auto try_operand = [&](const formats::Quantization& quantization) {
    oracle::ScalarQuantize(trial.view(), quantization);
  };
  for (size_t site = 0; site < resolved.sites().size(); ++site) {
    for (const precision::GemmRole role : precision::kGemmRoles) {
      const precision::GemmPrecision& precision = resolved.For(site, role);
      const oracle::ScalarProduct product(
          {.values = trial.view(), .quantization = precision.left_operand()},
          {.values = trial.view(), .quantization = precision.right_operand()},
          precision);
    }
  }
  const precision::Recipe& recipe = resolved.recipe();
  for (const auto& [key, operand] : precision::kAttentionOperands) {
    if (recipe.attention.*operand) try_operand(*(recipe.attention.*operand));
  }
  if (recipe.norm_gains) try_operand(*recipe.norm_gains);
}

}  // namespace

precision::Recipe AsKnown(const precision::Recipe& registered) {
  precision::Recipe recipe = registered;
  for (const KnownRecipe& known : kKnown) {
    if (recipe.name != known.name) continue;
    const decltype(recipe.fprop.accumulation) sums = {.interval =
                                                          known.interval};
    recipe.activation = known.activation;
    recipe.fprop = {known.x.Spec(), known.weight.Spec(), sums};
    recipe.dgrad = {known.dy_of_dgrad.Spec(), known.weight_of_dgrad.Spec(),
                    sums};
    recipe.wgrad = {known.dy_of_wgrad.Spec(), known.x_of_wgrad.Spec(), sums,
                    /*left_again=*/false, known.x_again};
    recipe.weight_gradients = Activation::kFp32;
    recipe.first_layers = 0;
    recipe.last_layers = known.last_layers;
    recipe.width_multiple = 1;
    recipe.overrides.clear();
    recipe.attention = {};
    recipe.norm_gains.reset();
  }
  return recipe;
}

std::string WhyNotUnderstood(const precision::Recipe& recipe, bool registered,
                             const model::ModelConfig& config) {
  const bool known = std::ranges::any_of(kKnown, [&](const KnownRecipe& entry) {
    return recipe.name == entry.name;
  });
  if (registered && !known) {
    return "it is registered under a name that oracle/known_recipes.cc does "
           "not state";
  }
  const precision::ResolvedRecipe resolved(AsKnown(recipe),
                                           model::GemmSites(config));
  try {
    Try(resolved);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    return error.what();
  }
  return "";
}

}  // namespace isoloss::step_checks
