// Operands, comparisons and targets for tests of the GEMM.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/targets.h"

namespace isoloss::kernels {

/// A matrix that lies `offset` floats into wider rows: strided, misaligned.
class StridedMatrix {
 public:
  StridedMatrix(size_t rows, size_t cols, size_t offset, size_t padding)
      : memory_(rows, offset + cols + padding), offset_(offset), cols_(cols) {}

  MatrixView<float> view() { return memory_.view().Cols(offset_, cols_); }
  Matrix<float>& memory() { return memory_; }
  bool IsOutside(size_t col) const {
    return col < offset_ || col >= offset_ + cols_;
  }

 private:
  Matrix<float> memory_;
  size_t offset_;
  size_t cols_;
};

enum class Values {
  kBf16,  ///< BF16 values in [-0.5, 0.5)
  kFp32,  ///< full FP32 significands over eleven binades
  kWild,  ///< any bits at all in a tenth, and -0, infinity, NaN, subnormals
};

inline float ValueAt(Values kind, const CounterRng& rng, uint64_t index) {
  const float uniform = static_cast<float>(rng.Uniform(2 * index) - 0.5);
  const uint64_t choice = rng.Bits(2 * index + 1);
  switch (kind) {
    case Values::kBf16:
      return formats::RoundToBf16(uniform);
    case Values::kFp32:
      return std::ldexp(uniform, static_cast<int>(choice % 11) - 5);
    case Values::kWild:
      break;
  }
  switch (choice % 600) {
    case 0:
      return std::bit_cast<float>(0x7FC00000u);
    case 1:
      return std::bit_cast<float>(0xFF800000u);
    case 2:
      return std::bit_cast<float>(0x7F7FFFFFu);
    case 3:
    case 4:
      return std::bit_cast<float>(static_cast<uint32_t>(choice >> 32) &
                                  0x807FFFFFu);
    default:
      if (choice % 10 == 5) return -0.0f;
      if (choice % 10 == 6) {
        return std::bit_cast<float>(static_cast<uint32_t>(choice >> 32));
      }
      return uniform;
  }
}

inline void Fill(MatrixView<float> view, Values kind, uint64_t stream) {
  const CounterRng rng(20'251, stream);
  for (size_t i = 0; i < view.rows(); ++i) {
    for (size_t j = 0; j < view.cols(); ++j) {
      view(i, j) = ValueAt(kind, rng, i * view.cols() + j);
    }
  }
}

inline Matrix<float> Filled(size_t rows, size_t cols, Values kind,
                            uint64_t stream) {
  Matrix<float> matrix(rows, cols);
  Fill(matrix.view(), kind, stream);
  return matrix;
}

/// The same bits, or both NaN: payloads are not defined.
inline bool SameResult(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline testing::AssertionResult SameResults(MatrixView<const float> actual,
                                            MatrixView<const float> expected) {
  for (size_t i = 0; i < expected.rows(); ++i) {
    for (size_t j = 0; j < expected.cols(); ++j) {
      if (SameResult(actual(i, j), expected(i, j))) continue;
      return testing::AssertionFailure()
             << "element " << i << ", " << j << " of " << expected.rows() << "x"
             << expected.cols() << " is " << actual(i, j) << ", expected "
             << expected(i, j);
    }
  }
  return testing::AssertionSuccess();
}

/// Runs each case with the kernels forced to one target.
class OnEveryTarget : public testing::TestWithParam<std::string> {
 protected:
  OnEveryTarget() { ForceTarget(GetParam()); }
  ~OnEveryTarget() override { ForceTarget(""); }
};

inline std::string TargetTestName(
    const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

/// Gemm's result against GemmScalar's, from a result full of NaN.
inline testing::AssertionResult EqualsScalar(const GemmProblem& problem) {
  const size_t rows = problem.c.rows();
  const size_t cols = problem.c.cols();
  Matrix<float> expected(rows, cols);
  GemmProblem definition = problem;
  definition.c = expected.view();
  GemmScalar(definition);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) problem.c(i, j) = std::nanf("");
  }
  Gemm(problem);
  return SameResults(problem.c, expected.view());
}

}  // namespace isoloss::kernels
