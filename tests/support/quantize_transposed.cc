#include "support/quantize_transposed.h"

#include <algorithm>

#include "isoloss/kernels/row_tasks.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "support/quantize_transposed.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/quantize-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void QuantizeDequantizeTransposed(MatrixView<const float> source,
                                  const formats::Quantization& spec,
                                  MatrixView<float> out) {
  for (size_t j = 0; j < source.cols(); ++j) {
    for (size_t i = 0; i < source.rows(); ++i) out(j, i) = source(i, j);
  }
  for (size_t j = 0; j < out.rows(); ++j) {
    for (size_t k = 0; k < out.cols(); k += formats::kMxBlockSize) {
      const size_t count = std::min(formats::kMxBlockSize, out.cols() - k);
      const std::span<float> block(out.Row(j) + k, count);
      formats::QuantizeDequantizeBlock(block, spec, block);
    }
  }
}

#else

/// One vector of blocks, transposed: block j goes to row j of out.
HWY_INLINE void TransposeBlocks(const float* block, size_t blocks, size_t count,
                                MatrixView<float> out) {
  const F32 d;
  for (size_t k = 0; k < count; k += kLanes) {
    VecF v[kLanes];
    HWY_UNROLL(16)
    for (size_t i = 0; i < kLanes; ++i) {
      v[i] = hn::Load(d, block + (k + i) * kLanes);
    }
    Transpose(v);
    const size_t steps = std::min(kLanes, count - k);
    for (size_t j = 0; j < blocks; ++j)
      StoreFirst(d, v[j], out.Row(j) + k, steps);
  }
}

void QuantizeDequantizeTransposed(MatrixView<const float> source,
                                  const formats::Quantization& spec,
                                  MatrixView<float> out) {
  const BlockQuantizer quantizer(spec);
  const size_t depth = source.rows();
  HWY_ALIGN float block[formats::kMxBlockSize * kLanes] = {};
  ForEachMxBlock({&depth, 1}, [&](size_t k, size_t count) HWY_ATTR {
    for (size_t j = 0; j < source.cols(); j += kLanes) {
      const size_t columns = std::min(kLanes, source.cols() - j);
      QuantizeBlocksDown<1>(quantizer, source.Row(k) + j, source.stride(),
                            columns, count, block, kLanes);
      TransposeBlocks(block, columns, count,
                      out.Rows(j, columns).Cols(k, count));
    }
  });
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(QuantizeDequantizeTransposed);

}  // namespace

void QuantizeDequantizeTransposed(MatrixView<const float> source,
                                  const formats::Quantization& spec,
                                  MatrixView<float> out, Executor& executor) {
  RequireShape("QuantizeDequantizeTransposed", "out", out, source.cols(),
               source.rows());
  ForRowRuns(source.rows(), source.cols(), formats::kMxBlockSize, executor,
             [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(QuantizeDequantizeTransposed)
               (source.Rows(first, count), spec, out.Cols(first, count));
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
