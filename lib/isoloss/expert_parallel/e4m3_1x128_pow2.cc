// Encodes rows as DeepEP's FP8 dispatch with round_scale: the scale is rounded
// up to a power of two, so that nothing saturates.
#include "isoloss/expert_parallel/payload.h"
#include "isoloss/kernels/wire.h"

namespace isoloss::expert_parallel {

extern constinit const Payload kPayload_e4m3_1x128_pow2 = {
    .name = "e4m3_1x128_pow2",
    .row_bytes =
        [](size_t width) {
          constexpr size_t kRun = kernels::kScaledRun;
          return width + (width + kRun - 1) / kRun * sizeof(float);
        },
    .encode =
        [](const float* row, size_t width, std::byte* bytes) {
          kernels::EncodeE4m3Row(row, width, kernels::RunScale::kPow2, bytes);
        },
    .decode = kernels::DecodeE4m3Row,
    .format = kernels::RowFormat::kE4m3Pow2,
};

}  // namespace isoloss::expert_parallel
