#include "isoloss/kernels/quantize.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "isoloss/kernels/row_tasks.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/quantize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/quantize-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void QuantizeDequantize(MatrixView<const float> source,
                        const formats::Quantization& spec,
                        MatrixView<float> out, bool /*stream*/) {
  for (size_t i = 0; i < source.rows(); ++i) {
    for (size_t k = 0; k < source.cols(); k += formats::kMxBlockSize) {
      const size_t count = std::min(formats::kMxBlockSize, source.cols() - k);
      formats::QuantizeDequantizeBlock({source.Row(i) + k, count}, spec,
                                       {out.Row(i) + k, count});
    }
  }
}

#else

void QuantizeDequantize(MatrixView<const float> source,
                        const formats::Quantization& spec,
                        MatrixView<float> out, bool stream) {
  constexpr size_t kVectorBytes = kLanes * sizeof(float);
  const bool aligned =
      reinterpret_cast<uintptr_t>(out.data()) % kVectorBytes == 0 &&
      out.stride() % kLanes == 0;
  const size_t depth = source.cols();
  RowBlocks blocks(spec, stream && aligned);
  for (size_t i = 0; i < source.rows(); ++i) {
    ForEachMxBlock({&depth, 1}, [&](size_t k, size_t count) HWY_ATTR {
      blocks.Add(source.Row(i) + k, count, out.Row(i) + k);
    });
  }
  blocks.Flush();
  hwy::FlushStream();
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(QuantizeDequantize);

}  // namespace

void QuantizeDequantize(MatrixView<const float> source,
                        const formats::Quantization& spec,
                        MatrixView<float> out, Executor& executor) {
  RequireShape("QuantizeDequantize", "out", out, source.rows(), source.cols());
  // No cache would hold so large a result until it is read.
  constexpr size_t kCacheBytes = 64 << 20;
  const bool stream = out.rows() * out.cols() * sizeof(float) > kCacheBytes;
  ForRowRuns(source.rows(), source.cols(), 1, executor,
             [&](size_t first, size_t count) {
               HWY_DYNAMIC_DISPATCH(QuantizeDequantize)
               (source.Rows(first, count), spec, out.Rows(first, count),
                stream);
             });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
