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

/// TransformerEngine: what the tensor is multiplied by before its cells are
/// looked at; 1 beside an infinity, whose cell has the scale 448.
float TeEncode(const Quantization& quantization, float amax) {
  const float encode =
      std::min(Range(quantization) / amax, std::numeric_limits<float>::max());
  return amax == 0 || encode == 0 ? 1.0f : encode;
}

/// torchao: what the tensor is divided by. Of a tensor of zeros it has 0 and
/// beside an infinity infinity, which makes the tensor NaN; here these are 1.
float TorchaoDecode(const Quantization& quantization, float amax) {
  const float decode = amax / Range(quantization);
  return decode == 0 || std::isinf(decode) ? 1.0f : decode;
}

Scale OfCell(const Quantization& quantization, uint32_t amax_bits,
             const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(amax_bits);
  const float of_tensor = std::bit_cast<float>(tensor.current);
  const float largest = MaxFinite(*quantization.element);
  Scale scale;
  if (quantization.scale_rule == ScaleRule::kTorchao) {
    const float outer = TorchaoDecode(quantization, of_tensor);
    constexpr float kMinNormal = 0x1p-6f;
    const float wanted = std::max(amax / largest / outer, kMinNormal);
    scale.byte =
        static_cast<uint8_t>(Encode(kFormat_e4m3, wanted, Overflow::kSaturate));
    scale.decode = Decode(kFormat_e4m3, scale.byte);
    scale.encode = 1 / outer / scale.decode;
    return scale;
  }
  const float outer = TeEncode(quantization, of_tensor);
  scale.byte = static_cast<uint8_t>(Encode(
      kFormat_e4m3, amax * (outer * (1 / largest)), Overflow::kSaturate));
  scale.decode = Decode(kFormat_e4m3, scale.byte);
  scale.encode = std::min(1 / (scale.decode * (1 / outer)),
                          std::numeric_limits<float>::max());
  return scale;
}

float OfTensor(const Quantization& quantization, const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(tensor.current);
  return quantization.scale_rule == ScaleRule::kTorchao
             ? TorchaoDecode(quantization, amax)
             : 1 / TeEncode(quantization, amax);
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
