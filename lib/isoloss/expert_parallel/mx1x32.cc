// Encodes rows in the MXFP8 recipe's own operand format. Decoded rows quantise
// to themselves, so a GEMM that would quantise them anyway gives the same bits.
#include "isoloss/expert_parallel/payload.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/wire.h"

namespace isoloss::expert_parallel {

extern constinit const Payload kPayload_mx1x32 = {
    .name = "mx1x32",
    .row_bytes =
        [](size_t width) {
          constexpr size_t kRun = formats::kMxBlockSize;
          return width + (width + kRun - 1) / kRun;
        },
    .encode = kernels::EncodeMxRow,
    .decode = kernels::DecodeMxRow,
    .format = kernels::RowFormat::kMx,
};

}  // namespace isoloss::expert_parallel
