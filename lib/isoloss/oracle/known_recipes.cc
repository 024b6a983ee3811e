#include "isoloss/oracle/known_recipes.h"

#include <optional>

#include "isoloss/formats/scaling.h"

namespace isoloss::oracle {
namespace {

using formats::Cell;
using formats::NonFinitePolicy;
using formats::ScaleFormat;
using formats::ScaleRule;

using Activation = decltype(precision::Recipe::activation);

/// What a name in a table stands for; without an element: not quantised.
struct OperandFormat {
  const char* element = nullptr;
  ScaleRule rule = ScaleRule::kRceil;
  ScaleFormat scale = ScaleFormat::kE8m0;
  Cell cell = {1, 32};
  NonFinitePolicy non_finite = NonFinitePolicy::kBlockNan;
  const char* scaling = "current";
  int history = 0;
  int random_bits = 0;  ///< 0: to nearest even
  const char* transform = nullptr;

  std::optional<formats::Quantization> Spec() const {
    if (element == nullptr) return std::nullopt;
    return formats::Quantization{
        .element = &formats::FormatByName(element),
        .scale_rule = rule,
        .non_finite = non_finite,
        .scale_format = scale,
        .scaling = &formats::ScalingByName(scaling),
        .cell = cell,
        .rounding = &formats::RoundingModeByName(
            random_bits > 0 ? "stochastic" : "nearest_even"),
        .random_bits = random_bits,
        .transform = transform == nullptr
                         ? nullptr
                         : &formats::TransformByName(transform),
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
    .element = "e2m1", .random_bits = 16, .transform = "hadamard16_random"};

// ---- TransformerEngine -----------------------------------------------------

constexpr NonFinitePolicy kTe = NonFinitePolicy::kTe;
constexpr OperandFormat kTeMx = {.element = "e4m3", .non_finite = kTe};
constexpr OperandFormat kTeMxSquare = {
    .element = "e4m3", .cell = {32, 32}, .non_finite = kTe};

constexpr OperandFormat OfTensor(const char* element, const char* scaling,
                                 int history) {
  return {.element = element,
          .rule = ScaleRule::kTe,
          .scale = ScaleFormat::kFp32,
          .cell = {0, 0},
          .non_finite = kTe,
          .scaling = scaling,
          .history = history};
}
constexpr OperandFormat kTensorE4m3 = OfTensor("e4m3", "current", 0);
constexpr OperandFormat kTensorE5m2 = OfTensor("e5m2", "current", 0);
constexpr OperandFormat kDelayedE4m3 = OfTensor("e4m3", "delayed", 1024);
constexpr OperandFormat kDelayedE5m2 = OfTensor("e5m2", "delayed", 1024);

constexpr OperandFormat Nvfp4(size_t rows, int random_bits,
                              const char* transform) {
  return {.element = "e2m1",
          .rule = ScaleRule::kTe,
          .scale = ScaleFormat::kE4m3,
          .cell = {rows, 16},
          .non_finite = kTe,
          .scaling = "two_level",
          .random_bits = random_bits,
          .transform = transform};
}
constexpr OperandFormat kFp4 = Nvfp4(1, 0, nullptr);
constexpr OperandFormat kFp4Square = Nvfp4(16, 0, nullptr);
constexpr OperandFormat kFp4Random = Nvfp4(1, 8, nullptr);
constexpr OperandFormat kFp4Turned = Nvfp4(1, 0, "hadamard16_te");
constexpr OperandFormat kFp4RandomTurned = Nvfp4(1, 8, "hadamard16_te");

// ---- DeepSeek-V3 and torchao's FP8 -----------------------------------------

constexpr OperandFormat kTile = {
    "e4m3", ScaleRule::kDeepgemm, ScaleFormat::kFp32, {1, 128}, kTe};
constexpr OperandFormat kSquare = {
    "e4m3", ScaleRule::kDeepgemm, ScaleFormat::kFp32, {128, 128}, kTe};
constexpr OperandFormat kRow = {
    "e4m3", ScaleRule::kTorchao, ScaleFormat::kPow2, {1, 0}, kTe};

struct KnownRecipe {
  const char* name;
  Activation activation;
  // Left and right operand of y = x W^T, dx = dy W, dW = dy^T x.
  OperandFormat x, weight;
  OperandFormat dy_of_dgrad, weight_of_dgrad;
  OperandFormat dy_of_wgrad, x_of_wgrad;
  /// Steps between two promotions of sums; 0: none.
  size_t interval = 0;
  /// x of wgrad is what fprop made of it.
  bool x_again = false;
  size_t last_layers = 0;
};

constexpr KnownRecipe kKnown[] = {
    {"fp32", Activation::kFp32, kHigh, kHigh, kHigh, kHigh, kHigh, kHigh},
    {"bf16", Activation::kBf16, kHigh, kHigh, kHigh, kHigh, kHigh, kHigh},
    {"mxfp8_rceil", Activation::kBf16, kE4m3, kE4m3, kE4m3, kE4m3, kE4m3,
     kE4m3},
    {"mxfp8_rceil_wgrad_with_hp", Activation::kBf16, kE4m3, kE4m3, kE4m3, kE4m3,
     kHigh, kHigh},
    {"mxfp8_floor", Activation::kBf16, kE4m3Floor, kE4m3Floor, kE4m3Floor,
     kE4m3Floor, kE4m3Floor, kE4m3Floor},
    {"mxfp8_e5m2_grads", Activation::kBf16, kE4m3, kE4m3, kE5m2, kE4m3, kE5m2,
     kE4m3},
    {"mxfp4_floor", Activation::kBf16, kE2m1Floor, kE2m1Floor, kE2m1Floor,
     kE2m1Floor, kE2m1Floor, kE2m1Floor},
    {"mxfp8_cublas", Activation::kBf16, kE4m3Floor, kE4m3Floor, kE4m3Floor,
     kE4m3Floor, kE4m3Floor, kE4m3Floor},
    {"mxfp8_cublas_rceil", Activation::kBf16, kE4m3, kE4m3, kE4m3, kE4m3, kE4m3,
     kE4m3},
    {"mxfp6_e3m2", Activation::kBf16, kE3m2, kE3m2, kE3m2, kE3m2, kE3m2, kE3m2},
    {"mxfp6_e2m3", Activation::kBf16, kE2m3, kE2m3, kE2m3, kE2m3, kE2m3, kE2m3},
    {"mxfp4_rht_sr", Activation::kBf16, kE4m3, kE4m3, kE2m1Random, kE2m1Random,
     kE2m1Random, kE2m1Random},
    {"te_mxfp8", Activation::kBf16, kTeMx, kTeMx, kTeMx, kTeMx, kTeMx, kTeMx},
    {"te_mxfp8_2d", Activation::kBf16, kTeMx, kTeMxSquare, kTeMx, kTeMxSquare,
     kTeMx, kTeMx},
    {"te_fp8_delayed", Activation::kBf16, kDelayedE4m3, kDelayedE4m3,
     kDelayedE5m2, kDelayedE4m3, kDelayedE5m2, kDelayedE4m3},
    {"te_fp8_current", Activation::kBf16, kTensorE4m3, kTensorE4m3, kTensorE5m2,
     kTensorE4m3, kTensorE5m2, kTensorE4m3},
    {.name = "te_nvfp4",
     .activation = Activation::kBf16,
     .x = kFp4,
     .weight = kFp4Square,
     .dy_of_dgrad = kFp4Random,
     .weight_of_dgrad = kFp4Square,
     .dy_of_wgrad = kFp4RandomTurned,
     .x_of_wgrad = kFp4Turned,
     .last_layers = 1},
    {"deepseek_v3_fp8", Activation::kBf16, kTile, kSquare, kTile, kSquare,
     kTile, kTile, /*interval=*/128, /*x_again=*/true},
    {"deepseek_v3_fp8_block_grads", Activation::kBf16, kTile, kSquare, kSquare,
     kSquare, kSquare, kTile, /*interval=*/128, /*x_again=*/true},
    {"fp8_rowwise", Activation::kBf16, kRow, kRow, kRow, kRow, kRow, kRow},
};

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
  }
  return recipe;
}

}  // namespace isoloss::oracle
