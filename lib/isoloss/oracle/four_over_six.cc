#include "isoloss/oracle/four_over_six.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "isoloss/oracle/scalar_cast.h"

namespace isoloss::oracle {
namespace {

constexpr float kLargestCode = 6.0f;

float AmaxOf(MatrixView<const float> values) {
  float amax = 0.0f;
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      amax = std::max(amax, std::fabs(values(row, col)));
    }
  }
  return amax;
}

/// Adds the second half to the first one until one number is left.
float SumInHalves(std::vector<float> sums) {
  while (sums.size() > 1) {
    const size_t half = (sums.size() + 1) / 2;
    for (size_t i = half; i < sums.size(); ++i) sums[i - half] += sums[i];
    sums.resize(half);
  }
  return sums[0];
}

/// Quantises the blocks of one tensor.
class Blocks {
 public:
  Blocks(const FourOverSix& rule, const formats::Quantization& quantization,
         ScalarTensor& tensor)
      : rule_(rule),
        tensor_(tensor),
        coder_(quantization),
        amax_(AmaxOf(tensor.elements.view())) {
    if (amax_ > 0.0f) {
      encode_ = std::fmin(rule.largest_scale * kLargestCode / amax_, kFloatMax);
    }
    tensor_.tensor_scale = 1.0f / encode_;
  }

  void Quantize(size_t row, size_t col, ScalarScale& scale) {
    const size_t rows =
        std::min(tensor_.cell_rows, tensor_.elements.rows() - row);
    const size_t cols =
        std::min(tensor_.cell_cols, tensor_.elements.cols() - col);
    const MatrixView<const float> block =
        tensor_.elements.cview().Rows(row, rows).Cols(col, cols);
    const float base = AmaxOf(block) / kLargestCode * encode_;
    constexpr float kFromSixToFour = 1.5f;
    const ScalarScale four = ScaleOf(base * kFromSixToFour);
    const ScalarScale six = ScaleOf(base);
    scale = ErrorOf(block, four) < ErrorOf(block, six) ? four : six;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j) {
        tensor_.codes(row + i, col + j) = coder_.Code(block(i, j), scale, 0);
      }
    }
  }

 private:
  ScalarScale ScaleOf(float wanted) const {
    const float decode = NearestE4m3(std::fmin(wanted, kLargestE4m3));
    return {std::fmin(1.0f / (decode * tensor_.tensor_scale), kFloatMax),
            decode};
  }

  float ErrorOf(MatrixView<const float> block, const ScalarScale& scale) const {
    const float whole = kLargestCode * rule_.largest_scale;
    std::vector<float> rows;
    for (size_t i = 0; i < block.rows(); ++i) {
      float sum = 0.0f;
      for (size_t j = 0; j < block.cols(); ++j) {
        const float code = coder_.Code(block(i, j), scale, 0);
        const float error = code * scale.decode * amax_ / whole - block(i, j);
        sum += rule_.by_squares ? error * error : std::fabs(error);
      }
      rows.push_back(sum);
    }
    return SumInHalves(std::move(rows));
  }

  const FourOverSix& rule_;
  ScalarTensor& tensor_;
  ScalarCoder coder_;
  float amax_;
  float encode_ = 1.0f;
};

}  // namespace

void ChooseFourOrSix(const FourOverSix& rule,
                     const formats::Quantization& quantization,
                     ScalarTensor& tensor) {
  Blocks blocks(rule, quantization, tensor);
  size_t cell = 0;
  for (size_t row = 0; row < tensor.elements.rows(); row += tensor.cell_rows) {
    for (size_t col = 0; col < tensor.elements.cols();
         col += tensor.cell_cols) {
      blocks.Quantize(row, col, tensor.scales[cell++]);
    }
  }
}

}  // namespace isoloss::oracle
