// Errors in the E8M0 scale of a block.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "qualification/engine.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using formats::Quantization;
using formats::ScaleRule;
using model::GemmTask;
using precision::GemmRole;

constexpr uint8_t kNanScale = 0xFF;

/// Plants `edits` in all products that quantise something.
void PlantEngine(MutantContext& context, EngineEdits edits) {
  if (!edits.touches) edits.touches = IsQuantized;
  context.hooks.gemm_engine = MakeEngine(std::move(edits));
}

float LargestMagnitude(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) largest = std::max(largest, std::fabs(value));
  return largest;
}

/// The scale byte that `spec` gives a block with this largest magnitude.
uint8_t ScaleOf(float amax, const Quantization& spec) {
  return formats::MxScale({&amax, 1}, spec);
}

Quantization WithMode(Quantization spec, ScaleRule mode) {
  spec.scale_rule = mode;
  return spec;
}

auto ScaleBy(ScaleRule mode) {
  return [mode](MutantContext& context) {
    PlantEngine(context, {.scale = [mode](const Place& place,
                                          std::span<const float> block) {
                  return formats::MxScale(block, WithMode(place.spec(), mode));
                }});
  };
}

void AmaxThroughBf16(MutantContext& context) {
  PlantEngine(context,
              {.scale = [](const Place& place, std::span<const float> block) {
                return ScaleOf(formats::RoundToBf16(LargestMagnitude(block)),
                               place.spec());
              }});
}

/// Below 2^-24 FP16 has no number: such blocks get the scale of zero, and all
/// their elements saturate at almost nothing.
void AmaxThroughFp16(MutantContext& context) {
  PlantEngine(
      context, {.scale = [](const Place& place, std::span<const float> block) {
        constexpr float kStep = 0x1p-24f;
        const float amax = LargestMagnitude(block);
        const float kept =
            amax < 0x1p-14f ? std::nearbyint(amax / kStep) * kStep : amax;
        return ScaleOf(kept, place.spec());
      }});
}

/// Factor and reciprocal that a careless decoder makes of a scale byte.
template <typename Factors>
void DecodeScaleAs(MutantContext& context, Factors factors) {
  PlantEngine(context, {.elements = [factors](const Place& place, uint8_t scale,
                                              std::span<const float> in,
                                              std::span<float> out) {
                const auto [factor, reciprocal] = factors(scale);
                for (size_t i = 0; i < in.size(); ++i) {
                  out[i] = formats::RoundToFormat(
                               *place.spec().element, in[i] * reciprocal,
                               formats::Overflow::kSaturate) *
                           factor;
                }
              }});
}

void ExtremeCodesAsZeroAndInfinity(MutantContext& context) {
  DecodeScaleAs(context, [](uint8_t scale) {
    float factor = formats::DecodeE8m0(scale);
    if (scale == 0) factor = 0;
    if (scale == kNanScale) factor = std::numeric_limits<float>::infinity();
    return std::pair(factor, formats::E8m0Reciprocal(scale));
  });
}

void ReciprocalOf254IsZero(MutantContext& context) {
  DecodeScaleAs(context, [](uint8_t scale) {
    return std::pair(formats::DecodeE8m0(scale),
                     scale == 254 ? 0.0f : formats::E8m0Reciprocal(scale));
  });
}

void Scale128IsNan(MutantContext& context) {
  PlantEngine(context, {.scale = [](const Place& place,
                                    std::span<const float> block) -> uint8_t {
                const uint8_t scale = formats::MxScale(block, place.spec());
                return scale == 128 ? kNanScale : scale;
              }});
}

void ZeroBlockDividesByZero(MutantContext& context) {
  PlantEngine(context, {.scale = [](const Place& place,
                                    std::span<const float> block) -> uint8_t {
                if (LargestMagnitude(block) == 0) return kNanScale;
                return formats::MxScale(block, place.spec());
              }});
}

void FloorWithoutSaturation(MutantContext& context) {
  PlantEngine(context,
              {.scale =
                   [](const Place& place, std::span<const float> block) {
                     return formats::MxScale(
                         block, WithMode(place.spec(), ScaleRule::kFloor));
                   },
               .elements =
                   [](const Place& place, uint8_t scale,
                      std::span<const float> in, std::span<float> out) {
                     for (size_t i = 0; i < in.size(); ++i) {
                       out[i] = formats::RoundToFormat(
                                    *place.spec().element,
                                    in[i] * formats::E8m0Reciprocal(scale),
                                    formats::Overflow::kNonFinite) *
                                formats::DecodeE8m0(scale);
                     }
                   }});
}

/// The writer packs rows of scales without gaps, the reader steps over rows
/// that are padded to multiples of 4 (as tiles of 128 x 4 want); beyond the end
/// it finds the neutral scale.
void ReadScalesWithPaddedStride(MutantContext& context) {
  PlantEngine(context,
              {.touches =
                   [](const GemmTask& task) {
                     return IsQuantized(task) && task.role == GemmRole::kFprop;
                   },
               .scales =
                   [](const Place& place, std::span<const Block> /*blocks*/,
                      const Matrix<float>& /*rows*/, Matrix<uint8_t>& scales) {
                     if (!place.IsWeight()) return;
                     Matrix<uint8_t> packed;
                     packed.CopyFrom(scales);
                     const size_t stride = (scales.cols() + 3) / 4 * 4;
                     for (size_t i = 0; i < scales.rows(); ++i) {
                       for (size_t n = 0; n < scales.cols(); ++n) {
                         const size_t at = i * stride + n;
                         scales(i, n) = at < packed.size() ? packed.data()[at]
                                                           : uint8_t{127};
                       }
                     }
                   }});
}

/// Scales of short blocks lie in memory that nobody wrote: one in eight is
/// whatever was there.
void UninitialisedTailScales(MutantContext& context) {
  const CounterRng rng(context.seed, StreamId("mutants/tail_scales"));
  PlantEngine(
      context,
      {.scales = [rng, clock = context.clock](
                     const Place& place, std::span<const Block> blocks,
                     const Matrix<float>& /*rows*/, Matrix<uint8_t>& scales) {
        for (size_t n = 0; n < blocks.size(); ++n) {
          if (blocks[n].end - blocks[n].begin == formats::kMxBlockSize)
            continue;
          for (size_t i = 0; i < scales.rows(); ++i) {
            const uint64_t at =
                ((static_cast<uint64_t>(clock->step) << 8 | place.task.group)
                     << 24 |
                 i << 8) +
                n;
            if (rng.Below(at, 8) == 0) {
              scales(i, n) = static_cast<uint8_t>(100 + (rng.Bits(at) & 31));
            }
          }
        }
      }});
}

/// The task of the expert before this one.
const GemmTask* PreviousExpert(const Place& place) {
  for (const GemmTask& task : place.batch) {
    if (task.site == place.task.site && task.role == place.task.role &&
        task.group + 1 == place.task.group) {
      return &task;
    }
  }
  return nullptr;
}

/// The first row of an expert's weights is scaled by the last one's scales of
/// the expert before.
void ScalesLeakBetweenExperts(MutantContext& context) {
  PlantEngine(context,
              {.touches =
                   [](const GemmTask& task) {
                     return IsQuantized(task) &&
                            AtSite(task, "routed_experts") &&
                            task.role == GemmRole::kFprop;
                   },
               .scales =
                   [](const Place& place, std::span<const Block> blocks,
                      const Matrix<float>& /*rows*/, Matrix<uint8_t>& scales) {
                     const GemmTask* previous = PreviousExpert(place);
                     if (!place.IsWeight() || previous == nullptr) return;
                     const Matrix<float> others = RowsOf(previous->problem.b);
                     for (size_t n = 0; n < blocks.size(); ++n) {
                       scales(0, n) = formats::MxScale(
                           {others.Row(others.rows() - 1) + blocks[n].begin,
                            blocks[n].end - blocks[n].begin},
                           place.spec());
                     }
                   }});
}

/// The sums of that projection stay at the 0 that they begin with.
void OutputScalesNeverWritten(MutantContext& context) {
  PlantEngine(context,
              {.touches =
                   [site = LastAttentionOutput(context)](const GemmTask& task) {
                     return IsQuantized(task) && task.site == site &&
                            task.role == GemmRole::kFprop;
                   },
               .product = [](const Product& /*product*/) {}});
}

}  // namespace

std::vector<Mutant> ScaleMutants() {
  const std::string group = "scale";
  std::vector<Mutant> mutants = {
      {.name = "scale_floor",
       .catalogue = 1,
       .group = group,
       .what = "Scales are rounded down, so the largest elements saturate",
       .link = "https://github.com/pytorch/ao/issues/2035",
       .plant = ScaleBy(ScaleRule::kFloor)},
      {.name = "scale_ceil",
       .group = group,
       .kind = Class::kSpecificationChange,
       .what = "Scales are rounded up to the next power of two of amax",
       .link = "",
       .note = "torchao's CEIL: never saturates, one bit coarser where amax "
               "would have fitted",
       .plant = ScaleBy(ScaleRule::kCeil)},
      {.name = "scale_even",
       .group = group,
       .kind = Class::kSpecificationChange,
       .what = "Scales follow amax rounded to nearest even",
       .link = "",
       .note = "torchao's EVEN",
       .plant = ScaleBy(ScaleRule::kEven)},
      {.name = "amax_bf16",
       .catalogue = 2,
       .group = group,
       .kind = Class::kEquivalent,
       .what = "The largest magnitude passes through BF16",
       .link = "https://github.com/pytorch/ao/pull/4725",
       .note = "every quantised operand is BF16 already; only recipes that "
               "quantise FP32 values would notice",
       .plant = AmaxThroughBf16},
      {.name = "amax_fp16",
       .catalogue = 3,
       .group = group,
       .what = "The largest magnitude passes through FP16, where small "
               "gradients are zero",
       .link = "https://github.com/pytorch/ao/pull/3171",
       .plant = AmaxThroughFp16},
      {.name = "scale_codes_0_and_255",
       .catalogue = 4,
       .group = group,
       .what = "Scale code 0 is decoded as 0 and 255 as infinity",
       .link = "https://github.com/NVIDIA/TransformerEngine/pull/3262",
       .note = "in a plain run code 0 stands at blocks of zeros only, where "
               "0 * 0 is right, and 255 in runs that have failed already",
       .only_in_probes = true,
       .plant = ExtremeCodesAsZeroAndInfinity},
      {.name = "reciprocal_of_scale_254",
       .catalogue = 5,
       .group = group,
       .kind = Class::kEquivalent,
       .what = "The reciprocal of scale 254 is taken for 0",
       .link = "https://github.com/flashinfer-ai/flashinfer/pull/4023",
       .note = "needs magnitudes from 2^127 on, which no run here has",
       .plant = ReciprocalOf254IsZero},
      {.name = "scale_128_is_nan",
       .catalogue = 6,
       .group = group,
       .what = "Scale byte 128 is taken for NaN",
       .link = "https://github.com/sgl-project/sglang/pull/25519",
       .note = "needs a block whose largest magnitude is in (448, 896]; "
               "operands of a plain run are far smaller",
       .only_in_probes = true,
       .plant = Scale128IsNan},
      {.name = "zero_block_nan",
       .catalogue = 7,
       .group = group,
       .what = "A block of zeros becomes 0/0",
       .link = "https://github.com/huggingface/kernels-community/pull/680",
       .note = "the query of a sequence's first token has no gradient",
       .plant = ZeroBlockDividesByZero},
      {.name = "floor_without_saturation",
       .catalogue = 8,
       .group = group,
       .what = "Scales are rounded down and elements beyond the largest value "
               "become NaN",
       .link = "https://github.com/uxlfoundation/oneDNN/pull/5626",
       .plant = FloorWithoutSaturation},
      {.name = "scale_stride_padded",
       .catalogue = 9,
       .group = group,
       .what = "Scales of weights are read with a padded stride that they were "
               "not written with",
       .link = "https://github.com/NVIDIA/TransformerEngine/pull/3070",
       .plant = ReadScalesWithPaddedStride},
      {.name = "scale_padding_uninitialised",
       .catalogue = 10,
       .group = group,
       .what = "One in eight scales of short blocks was never written",
       .link = "https://github.com/vllm-project/vllm/pull/38148",
       .plant = UninitialisedTailScales},
      {.name = "expert_scale_leak",
       .catalogue = 11,
       .group = group,
       .what = "The first row of an expert's weights gets the scales of the "
               "expert before",
       .link = "https://github.com/flashinfer-ai/flashinfer/issues/3103",
       .plant = ScalesLeakBetweenExperts},
      {.name = "output_scales_unwritten",
       .catalogue = 12,
       .group = group,
       .what = "Output scales of one projection are never written: it gives 0",
       .link = "https://github.com/flashinfer-ai/flashinfer/issues/5053",
       .plant = OutputScalesNeverWritten},
  };
  for (Mutant& mutant : mutants) mutant.quantized_products = true;
  return mutants;
}

}  // namespace isoloss::qualification
