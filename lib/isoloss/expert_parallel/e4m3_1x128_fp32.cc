// Encodes rows as DeepEP's FP8 dispatch: scales are amax / 448, which are no
// powers of two. Rows therefore differ from those of any GEMM operand format.
#include "isoloss/expert_parallel/payload.h"
#include "isoloss/kernels/wire.h"

namespace isoloss::expert_parallel {

extern constinit const Payload kPayload_e4m3_1x128_fp32 = {
    .name = "e4m3_1x128_fp32",
    .row_bytes =
        [](size_t width) {
          constexpr size_t kRun = kernels::kScaledRun;
          return width + (width + kRun - 1) / kRun * sizeof(float);
        },
    .encode =
        [](const float* row, size_t width, std::byte* bytes) {
          kernels::EncodeE4m3Row(row, width, kernels::RunScale::kFp32, bytes);
        },
    .decode = kernels::DecodeE4m3Row,
    .format = kernels::RowFormat::kE4m3Fp32,
};

}  // namespace isoloss::expert_parallel
