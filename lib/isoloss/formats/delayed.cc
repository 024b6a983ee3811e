// The scale comes from the largest magnitudes of steps before.
#include <bit>

#include "isoloss/formats/scaling.h"

namespace isoloss::formats {
namespace {

Scale OfCell(const Quantization& quantization, uint32_t /*amax*/,
             const TensorAmax& tensor) {
  // Without a history the scale is 1, as TransformerEngine begins.
  if (!tensor.history) {
    constexpr uint8_t kOneE8m0 = 127;
    constexpr uint8_t kOneE4m3 = 0x38;
    return {
        1, 1,
        quantization.scale_format == ScaleFormat::kE8m0 ? kOneE8m0 : kOneE4m3};
  }
  return ScaleOfAmax(quantization, std::bit_cast<uint32_t>(*tensor.history));
}

}  // namespace

extern constinit const Scaling kScaling_delayed = {
    .name = "delayed",
    .reads_history = true,
    .of_cell = OfCell,
    .of_tensor = nullptr,
    .source = "TransformerEngine, DelayedScaling",
};

}  // namespace isoloss::formats
