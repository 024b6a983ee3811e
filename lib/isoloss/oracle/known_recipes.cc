#include "isoloss/oracle/known_recipes.h"

#include <optional>

namespace isoloss::oracle {
namespace {

using formats::ScaleRule;

using Activation = decltype(precision::Recipe::activation);

/// An operand's element format and scale; without an element: not quantised.
struct OperandFormat {
  const char* element = nullptr;
  ScaleRule scale = ScaleRule::kRceil;

  std::optional<formats::Quantization> Spec() const {
    if (element == nullptr) return std::nullopt;
    return formats::Quantization{
        .element = &formats::FormatByName(element),
        .scale_rule = scale,
        .non_finite = formats::NonFinitePolicy::kBlockNan};
  }
};

constexpr OperandFormat kHigh = {};
constexpr OperandFormat kE4m3 = {"e4m3", ScaleRule::kRceil};
constexpr OperandFormat kE4m3Floor = {"e4m3", ScaleRule::kFloor};
constexpr OperandFormat kE5m2 = {"e5m2", ScaleRule::kRceil};
constexpr OperandFormat kE2m1Floor = {"e2m1", ScaleRule::kFloor};

struct KnownRecipe {
  const char* name;
  Activation activation;
  // Left and right operand of y = x W^T, dx = dy W, dW = dy^T x.
  OperandFormat x, weight;
  OperandFormat dy_of_dgrad, weight_of_dgrad;
  OperandFormat dy_of_wgrad, x_of_wgrad;
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
};

}  // namespace

precision::Recipe AsKnown(const precision::Recipe& registered) {
  precision::Recipe recipe = registered;
  for (const KnownRecipe& known : kKnown) {
    if (recipe.name != known.name) continue;
    recipe.activation = known.activation;
    recipe.fprop = {known.x.Spec(), known.weight.Spec()};
    recipe.dgrad = {known.dy_of_dgrad.Spec(), known.weight_of_dgrad.Spec()};
    recipe.wgrad = {known.dy_of_wgrad.Spec(), known.x_of_wgrad.Spec()};
    recipe.weight_gradients = Activation::kFp32;
    recipe.attention = {};
    recipe.norm_gains.reset();
  }
  return recipe;
}

}  // namespace isoloss::oracle
