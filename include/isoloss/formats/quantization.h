// Describes how one operand of a product is quantised: everything that decides
// on its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isoloss/base/named.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {

/// A scale is stored in one of these formats.
enum class ScaleFormat {
  kNone,  ///< no scale: elements are casts
  kE8m0,  ///< a byte s for 2^(s - 127), 255 for NaN
  kE4m3,  ///< a byte of E4M3
  kPow2,  ///< a power of two in FP32
  kFp32,
};
inline constexpr Named<ScaleFormat> kScaleFormatNames[] = {
    {"none", ScaleFormat::kNone},
    {"e8m0", ScaleFormat::kE8m0},
    {"e4m3", ScaleFormat::kE4m3},
    {"pow2", ScaleFormat::kPow2},
    {"fp32", ScaleFormat::kFp32}};

/// A rule says how a scale follows from the largest magnitude of the elements
/// that share it (docs/numerics.md, sections 5 and 13).
enum class ScaleRule {
  // These rules are for E8M0 scales.
  kFloor,
  kCeil,
  kEven,
  kRceil,
  // These rules are for the remaining scale formats.
  kTe,        ///< TransformerEngine: largest element / amax is what multiplies
  kDeepgemm,  ///< DeepGEMM: amax / largest element is what is stored
  kTorchao,   ///< torchao: as kTe, but for its guards
};
inline constexpr Named<ScaleRule> kScaleRuleNames[] = {
    {"floor", ScaleRule::kFloor},    {"ceil", ScaleRule::kCeil},
    {"even", ScaleRule::kEven},      {"rceil", ScaleRule::kRceil},
    {"te", ScaleRule::kTe},          {"deepgemm", ScaleRule::kDeepgemm},
    {"torchao", ScaleRule::kTorchao}};

/// Says where scales come from (scaling.h).
/// Source   OCP Microscaling Formats (MX) v1.0, TransformerEngine's
///          Float8CurrentScaling and Float8BlockScaling, DeepGEMM (kCurrent);
///          TransformerEngine, DelayedScaling (kDelayed); NVFP4:
///          TransformerEngine, NVFP4BlockScaling, torchao, nvfp4_quantize with
///          a scale of the tensor, arXiv 2509.25149 (kTwoLevel).
enum class Scaling {
  kCurrent,   ///< each cell's from its own largest magnitude
  kDelayed,   ///< from the largest magnitudes of steps before
  kTwoLevel,  ///< one for the tensor, and one for each cell under it
};
inline constexpr Named<Scaling> kScalingNames[] = {
    {"current", Scaling::kCurrent},
    {"delayed", Scaling::kDelayed},
    {"two_level", Scaling::kTwoLevel}};

/// Says what elements that share a scale become if a NaN or an infinity is
/// among them (docs/numerics.md, section 6).
enum class NonFinitePolicy {
  kBlockNan,  ///< the scale, and so all of them, is NaN
  kTe,        ///< TransformerEngine: the scale comes from the other elements;
              ///< only a NaN element is NaN, an infinity saturates
};
inline constexpr Named<NonFinitePolicy> kNonFinitePolicyNames[] = {
    {"block_nan", NonFinitePolicy::kBlockNan}, {"te", NonFinitePolicy::kTe}};

/// Elements that share a scale are a rectangle of the operand, whose columns
/// are the contraction axis. 0 means the tensor's whole extent.
struct Cell {
  size_t rows = 1;
  size_t cols = 32;

  bool operator==(const Cell&) const = default;
};

/// A cell has at most kMaxCell rows or columns unless it has the whole extent,
/// and a history has at most kMaxHistory steps.
inline constexpr size_t kMaxCell = size_t{1} << 20;
inline constexpr int kMaxHistory = 1 << 16;

/// Is everything that defines the quantisation of one operand: numbers and
/// names of rules. One switch applies each rule. With the defaults and an
/// `element` it is an MX format.
struct Quantization {
  const Format* element = nullptr;
  ScaleRule scale_rule = ScaleRule::kRceil;
  NonFinitePolicy non_finite = NonFinitePolicy::kBlockNan;
  ScaleFormat scale_format = ScaleFormat::kE8m0;
  Scaling scaling = Scaling::kCurrent;
  Cell cell = {};
  RoundingMode rounding = RoundingMode::kNearestEven;
  /// Stochastic rounding uses this many bits for each element: 1 to 16.
  int random_bits = 0;
  /// The transform is applied to runs along the contraction axis.
  Transform transform = Transform::kNone;
  /// Delayed scaling looks back to the largest magnitudes of this many steps.
  int history = 0;

  /// True for blocks of 32 small floats with an E8M0 scale, rounded to nearest.
  /// Packed kernels and the functions of mx_block.h take them.
  constexpr bool is_mx() const {
    return element != nullptr && element->is_small_float() &&
           scale_format == ScaleFormat::kE8m0 && scaling == Scaling::kCurrent &&
           cell == Cell{} && rounding == RoundingMode::kNearestEven &&
           !transforms();
  }
  /// If true, equal values need not get equal codes.
  constexpr bool is_stochastic() const {
    return rounding == RoundingMode::kStochastic;
  }
  /// If true, scales need the amax of earlier steps, which the caller must
  /// keep.
  constexpr bool reads_history() const { return scaling == Scaling::kDelayed; }
  /// If true, cells share a second scale, by which products are multiplied.
  constexpr bool scales_tensor() const { return scaling == Scaling::kTwoLevel; }
  constexpr bool transforms() const { return transform != Transform::kNone; }
  /// If true, the result depends on TensorState: it needs random bits, a random
  /// transform or a history.
  constexpr bool needs_state() const {
    return is_stochastic() || reads_history() ||
           transform == Transform::kHadamard16Random;
  }
  /// Products of codes and FP32 scales may need many bits, because the scales
  /// need not be powers of two. GEMMs therefore multiply the sums of codes by
  /// such scales.
  constexpr bool scales_sums() const {
    return scale_format == ScaleFormat::kFp32;
  }

  bool operator==(const Quantization&) const = default;
};

std::string_view ScaleRuleName(ScaleRule rule);
std::string_view ScaleFormatName(ScaleFormat format);
std::string_view TransformName(Transform transform);
std::string_view NonFinitePolicyName(NonFinitePolicy policy);
/// Returns the rule of that name.
/// Errors   ConfigError that lists the names.
ScaleRule ScaleRuleByName(std::string_view name);

/// Says what is wrong with a description, in words that follow "it"; "" if
/// nothing is. Examples are a scale rule of another scale format or without a
/// scale, stochastic rounding without bits, and a history without delayed
/// scaling.
std::string WrongQuantization(const Quantization& quantization);

/// Returns the description in one word for logs, such as "e4m3·rceil". Whatever
/// differs from MX follows:
/// "e2m1·te·e4m3·two_level·1x16·stochastic8·hadamard16_te".
std::string QuantizationName(const Quantization& quantization);

/// Reads a description from that word, in which `.` may stand for `·`. "nvfp4"
/// is "e2m1·te·e4m3·1x16·two_level".
/// Errors   ConfigError if it is none, or if something is wrong with it.
Quantization QuantizationByName(std::string_view name);

}  // namespace isoloss::formats
