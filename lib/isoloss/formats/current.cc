// Each cell's scale comes from its own largest magnitude.
#include "isoloss/formats/scaling.h"

namespace isoloss::formats {
namespace {

Scale OfCell(const Quantization& quantization, uint32_t amax,
             const TensorAmax& /*tensor*/) {
  return ScaleOfAmax(quantization, amax);
}

}  // namespace

extern constinit const Scaling kScaling_current = {
    .name = "current",
    .reads_history = false,
    .of_cell = OfCell,
    .of_tensor = nullptr,
    .source =
        "OCP Microscaling Formats (MX) v1.0; TransformerEngine, "
        "Float8CurrentScaling and Float8BlockScaling; DeepGEMM",
};

}  // namespace isoloss::formats
