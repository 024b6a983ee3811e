// Matrices that tests of devices compute with, on the host and elsewhere.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/gemm.h"
#include "kernels/gemm_cases.h"

namespace isoloss::device {

/// Matrices of a test, all of which are copied to a memory and back.
class TestMatrices {
 public:
  MatrixView<float> Make(size_t rows, size_t cols, kernels::Values kind) {
    matrices_.push_back(kernels::Filled(rows, cols, kind, matrices_.size()));
    return matrices_.back().view();
  }

  /// A copy of them in some memory.
  class Copy {
   public:
    Copy(const TestMatrices& matrices, Memory& memory) : of_(matrices) {
      for (const Matrix<float>& matrix : matrices.matrices_) {
        Matrix<float>& copy = copies_.emplace_back(memory);
        copy.ResizeUninitialized(matrix.rows(), matrix.cols());
        if (matrix.size() == 0) continue;
        memory.CopyFromHost(matrix.data(), matrix.size() * sizeof(float),
                            copy.data());
      }
    }

    /// Returns the same part of the copy.
    template <typename T>
    MatrixView<T> View(MatrixView<T> part) {
      if (part.empty()) return part;
      for (size_t i = 0; i < copies_.size(); ++i) {
        const Matrix<float>& matrix = of_.matrices_[i];
        if (part.data() < matrix.data() ||
            part.data() >= matrix.data() + matrix.size()) {
          continue;
        }
        return {copies_[i].data() + (part.data() - matrix.data()), part.rows(),
                part.cols(), part.stride()};
      }
      ISOLOSS_ASSERT(false);
    }
    kernels::GemmProblem View(kernels::GemmProblem problem) {
      problem.a.values = View(problem.a.values);
      problem.b.values = View(problem.b.values);
      problem.c = View(problem.c);
      problem.addend = View(problem.addend);
      return problem;
    }
    std::vector<Matrix<float>> OnHost() const {
      std::vector<Matrix<float>> result;
      for (const Matrix<float>& copy : copies_) {
        Matrix<float>& host = result.emplace_back(copy.rows(), copy.cols());
        if (copy.size() == 0) continue;
        copy.memory().CopyToHost(copy.data(), copy.size() * sizeof(float),
                                 host.data());
      }
      return result;
    }

   private:
    const TestMatrices& of_;
    std::deque<Matrix<float>> copies_;
  };

 private:
  std::deque<Matrix<float>> matrices_;
};

inline testing::AssertionResult SameMatrices(
    const std::vector<Matrix<float>>& actual,
    const std::vector<Matrix<float>>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    testing::AssertionResult same =
        kernels::SameResults(actual[i].view(), expected[i].view());
    if (!same) return same << ", matrix " << i;
  }
  return testing::AssertionSuccess();
}

}  // namespace isoloss::device
