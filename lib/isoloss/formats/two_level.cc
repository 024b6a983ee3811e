// A scale for the tensor, and one for each cell under it: NVFP4.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "isoloss/formats/scaling.h"

namespace isoloss::formats {

extern const Format kFormat_e4m3;

namespace {

/// The largest product of an element and a cell's scale.
float Range(const Quantization& quantization) {
  return MaxFinite(kFormat_e4m3) * MaxFinite(*quantization.element);
}

/// TransformerEngine multiplies the tensor by `encode` before it looks at
/// cells; 1 beside an infinity, whose cell has the scale 448.
Scale TeScale(float range, float amax) {
  const float encode =
      std::min(range / amax, std::numeric_limits<float>::max());
  if (amax == 0 || encode == 0) return {};
  return {.encode = encode, .decode = 1 / encode};
}

/// torchao divides by `decode`. Of a tensor of zeros it has 0, and beside an
/// infinity infinity, which makes the tensor NaN; here these are 1.
Scale TorchaoScale(float range, float amax) {
  const float decode = amax / range;
  if (decode == 0 || std::isinf(decode)) return {};
  return {.encode = 1 / decode, .decode = decode};
}

Scale OfTensor(const Quantization& quantization, const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(tensor.current);
  const float range = Range(quantization);
  return quantization.scale_rule == ScaleRule::kTorchao
             ? TorchaoScale(range, amax)
             : TeScale(range, amax);
}

Scale OfCell(const Quantization& quantization, uint32_t amax_bits,
             const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(amax_bits);
  const float largest = MaxFinite(*quantization.element);
  const bool torchao = quantization.scale_rule == ScaleRule::kTorchao;
  constexpr float kMinNormal = 0x1p-6f;
  const float wanted =
      torchao ? std::max(amax / largest / tensor.scale.decode, kMinNormal)
              : amax * (tensor.scale.encode * (1 / largest));
  Scale scale;
  scale.byte =
      static_cast<uint8_t>(Encode(kFormat_e4m3, wanted, Overflow::kSaturate));
  scale.decode = Decode(kFormat_e4m3, scale.byte);
  scale.encode = torchao ? tensor.scale.encode / scale.decode
                         : std::min(1 / (scale.decode * tensor.scale.decode),
                                    std::numeric_limits<float>::max());
  return scale;
}

}  // namespace

extern constinit const Scaling kScaling_two_level = {
    .name = "two_level",
    .reads_history = false,
    .of_cell = OfCell,
    .of_tensor = OfTensor,
    .source =
        "NVFP4: TransformerEngine, NVFP4BlockScaling; torchao, "
        "nvfp4_quantize with a scale of the tensor; arXiv 2509.25149",
};

}  // namespace isoloss::formats
