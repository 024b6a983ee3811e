#include "isoloss/kernels/travel.h"

#include <vector>

#include "isoloss/kernels/row_tasks.h"

namespace isoloss::kernels {
namespace {

/// Encodes and decodes one row; `bytes` is room for it.
void RoundTripRow(const float* from, size_t width, RowFormat format,
                  Rounding rounding, std::byte* bytes, float* to) {
  if (format == RowFormat::kMx) {
    EncodeMxRow(from, width, bytes);
    DecodeMxRow(bytes, width, rounding, to);
    return;
  }
  EncodeE4m3Row(
      from, width,
      format == RowFormat::kE4m3Fp32 ? RunScale::kFp32 : RunScale::kPow2,
      bytes);
  DecodeE4m3Row(bytes, width, rounding, to);
}

}  // namespace

void RoundTripRows(MatrixView<const float> from, RowFormat format,
                   Rounding rounding, MatrixView<float> to,
                   Executor& executor) {
  RequireShape("RoundTripRows", "to", to, from.rows(), from.cols());
  if (RanElsewhere(&RoundTripRows, from, format, rounding, to, executor))
    return;
  ForRowRuns(from.rows(), from.cols(), 1, executor,
             [&](size_t first, size_t count) {
               // There are codes, and at most four bytes of scales for each
               // value.
               std::vector<std::byte> bytes(5 * from.cols());
               for (size_t t = first; t < first + count; ++t) {
                 RoundTripRow(from.Row(t), from.cols(), format, rounding,
                              bytes.data(), to.Row(t));
               }
             });
}

void SumRows(const RowSums& sums, SumRounding how, MatrixView<float> out,
             Executor& executor) {
  constexpr const char* kWhere = "SumRows";
  RequireShape(kWhere, "out", out, sums.sums(), sums.rows.cols());
  if (!sums.weights.empty()) {
    RequireShape(kWhere, "weights", sums.weights, sums.rows.rows(), 1);
  }
  RequireLength(kWhere, "terms", sums.terms.size(), sums.begins.back());
  RequireRows(kWhere, {sums.terms.data(), sums.terms.size(), 1}, 0,
              sums.rows.rows());
  if (RanElsewhere(&SumRows, sums, how, out, executor)) return;
  ForRowRuns(out.rows(), out.cols(), 1, executor,
             [&](size_t first, size_t count) {
               for (size_t i = first; i < first + count; ++i) {
                 for (size_t j = 0; j < out.cols(); ++j) {
                   out(i, j) = sums.Of(i, j, how);
                 }
               }
             });
}

}  // namespace isoloss::kernels
