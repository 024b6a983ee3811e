// Errors in the cast of an element under a right scale.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "isoloss/formats/format.h"
#include "qualification/engine.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using formats::Format;
using formats::Overflow;
using model::GemmTask;
using precision::GemmRole;

/// Casts E4M3 elements v / 2^(scale - 127) by `cast(e4m3, v)`.
template <typename Cast>
auto CastBy(Cast cast) {
  return [cast](MutantContext& context) {
    const Format* e4m3 = &formats::FormatByName("e4m3");
    const auto table = std::make_shared<const CastTable>(
        [cast, e4m3](float value) { return cast(*e4m3, value); });
    context.hooks.gemm_engine =
        MakeEngine({.touches = IsQuantized,
                    .elements = [table, e4m3](const Place& place, uint8_t scale,
                                              std::span<const float> in,
                                              std::span<float> out) {
                      const Format* element = place.spec().element;
                      if (scale == 0xFF || element != e4m3) {
                        QuantizeUnderScale(*element, scale, in, out);
                        return;
                      }
                      const float reciprocal = formats::E8m0Reciprocal(scale);
                      const float factor = formats::DecodeE8m0(scale);
                      for (size_t i = 0; i < in.size(); ++i) {
                        out[i] = (*table)(in[i] * reciprocal) * factor;
                      }
                    }});
  };
}

float Truncated(const Format& element, float value) {
  return formats::Decode(element,
                         formats::Encode(element, value, Overflow::kSaturate,
                                         formats::RoundingMode::kTowardZero));
}

/// Halfway cases go up, not to even: mean error 1/32 of a step where operands
/// have 4 bits more than the element.
float HalvesRoundedUp(const Format& element, float value) {
  const float below = Truncated(element, value);
  const float nearest =
      formats::RoundToFormat(element, value, Overflow::kSaturate);
  // Away from zero is the other neighbour, as far as below is.
  const float away = below + 2 * (value - below);
  const bool halfway =
      value != below && std::fabs(value) < formats::MaxFinite(element) &&
      formats::RoundToFormat(element, away, Overflow::kSaturate) == away;
  if (!halfway) return nearest;
  return std::max(below, away);
}

float SubnormalsFlushed(const Format& element, float value) {
  const float rounded =
      formats::RoundToFormat(element, value, Overflow::kSaturate);
  const float smallest_normal = std::ldexp(1.0f, 1 - element.bias);
  return std::fabs(rounded) < smallest_normal ? std::copysign(0.0f, rounded)
                                              : rounded;
}

/// E4M3 FNUZ ends at 240.
float LimitedTo240(const Format& element, float value) {
  return formats::RoundToFormat(element, std::clamp(value, -240.0f, 240.0f),
                                Overflow::kSaturate);
}

void QuantizeGradientsAsE5m2(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && task.role != GemmRole::kFprop;
           },
       .before_quantising =
           [](const Place& place, Matrix<float>& rows) {
             if (!place.IsGradient()) return;
             formats::Quantization spec = place.spec();
             spec.element = &formats::FormatByName("e5m2");
             const size_t whole[] = {rows.cols()};
             const std::span<const size_t> given =
                 place.task.problem.segment_ends;
             QuantizeRows(spec, BlocksOf(given.empty() ? whole : given), rows);
           }});
}

/// Codes are E5M2, with E5M2's scales; the product reads them as E4M3.
void ReadE5m2AsE4m3(MutantContext& context) {
  const Format* e5m2 = &formats::FormatByName("e5m2");
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && task.role != GemmRole::kFprop;
           },
       .scale =
           [e5m2](const Place& place, std::span<const float> block) {
             formats::Quantization spec = place.spec();
             if (place.IsGradient()) spec.element = e5m2;
             return formats::MxScale(block, spec);
           },
       .elements =
           [e5m2](const Place& place, uint8_t scale, std::span<const float> in,
                  std::span<float> out) {
             const Format& element = *place.spec().element;
             if (!place.IsGradient()) {
               QuantizeUnderScale(element, scale, in, out);
               return;
             }
             for (size_t i = 0; i < in.size(); ++i) {
               const uint32_t code = formats::Encode(
                   *e5m2, in[i] * formats::E8m0Reciprocal(scale),
                   Overflow::kSaturate);
               out[i] =
                   formats::Decode(element, code) * formats::DecodeE8m0(scale);
             }
           }});
}

/// Bytes of a BF16 buffer, two per value, taken for as many FP8 codes: the
/// first half of the buffer fills the operand.
void ReadBf16AsFp8(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [site = LastAttentionOutput(context)](const GemmTask& task) {
             return IsQuantized(task) && task.role == GemmRole::kFprop &&
                    task.site == site;
           },
       .elements =
           [](const Place& place, uint8_t scale, std::span<const float> in,
              std::span<float> out) {
             const Format& element = *place.spec().element;
             if (!place.IsWeight()) {
               QuantizeUnderScale(element, scale, in, out);
               return;
             }
             const std::vector<float> values(in.begin(), in.end());
             for (size_t i = 0; i < out.size(); ++i) {
               const uint32_t bits = std::bit_cast<uint32_t>(values[i / 2]);
               const auto byte =
                   static_cast<uint8_t>(bits >> (i % 2 ? 24 : 16));
               out[i] =
                   formats::Decode(element, byte) * formats::DecodeE8m0(scale);
             }
           }});
}

/// The recipe is resolved, counted and declared, and nothing is cast.
void QuantizeNothing(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches = IsQuantized,
       .elements = [](const Place& /*place*/, uint8_t /*scale*/,
                      std::span<const float> in, std::span<float> out) {
         std::copy(in.begin(), in.end(), out.begin());
       }});
}

}  // namespace

std::vector<Mutant> ElementCastMutants() {
  const std::string group = "element_cast";
  std::vector<Mutant> mutants = {
      {.name = "e5m2_gradients",
       .catalogue = 13,
       .group = group,
       .what = "Output gradients pass through E5M2, which has a mantissa bit "
               "less",
       .link = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/638",
       .plant = QuantizeGradientsAsE5m2},
      {.name = "e5m2_read_as_e4m3",
       .catalogue = 14,
       .group = group,
       .what = "E5M2 bytes of output gradients are read as E4M3",
       .link = "https://github.com/NVIDIA/TransformerEngine/issues/3342",
       .plant = ReadE5m2AsE4m3},
      {.name = "truncation",
       .catalogue = 15,
       .group = group,
       .what = "Elements are truncated in place of rounded",
       .link = "",
       .plant = CastBy(Truncated)},
      {.name = "subnormals_flushed",
       .catalogue = 16,
       .group = group,
       .what = "Subnormal elements become zero",
       .link = "",
       .plant = CastBy(SubnormalsFlushed)},
      {.name = "fnuz_limit_240",
       .catalogue = 17,
       .group = group,
       .what = "Elements saturate at 240, the limit of E4M3 FNUZ",
       .link = "",
       .plant = CastBy(LimitedTo240)},
      {.name = "bf16_read_as_fp8",
       .catalogue = 18,
       .group = group,
       .what = "The BF16 buffer of one weight is read as FP8",
       .link = "https://github.com/NVIDIA/TransformerEngine/pull/1412",
       .plant = ReadBf16AsFp8},
      {.name = "halves_rounded_up",
       .catalogue = 19,
       .group = group,
       .what = "Halfway cases are rounded up in every product, a bias that "
               "feeds back",
       .link = "https://arxiv.org/abs/2510.04212",
       .plant = CastBy(HalvesRoundedUp)},
      {.name = "quantisation_off",
       .catalogue = 63,
       .group = group,
       .what = "Nothing is quantised, but the log says so",
       .link = "https://github.com/IST-DASLab/Quartet/issues/12",
       .plant = QuantizeNothing},
  };
  for (Mutant& mutant : mutants) mutant.quantized_products = true;
  return mutants;
}

}  // namespace isoloss::qualification
