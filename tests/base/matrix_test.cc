#include "isoloss/base/matrix.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace isoloss {
namespace {

TEST(Matrix, IsZeroAndAlignedAfterResize) {
  Matrix<float> matrix(3, 5);
  matrix(2, 4) = 1.0f;

  matrix.Resize(5, 3);

  EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix.data()) % 64, 0u);
  for (size_t i = 0; i < matrix.size(); ++i) EXPECT_EQ(matrix.data()[i], 0.0f);
}

TEST(Matrix, KeepsItsMemoryWhenItShrinksAndGrowsBack) {
  Matrix<float> matrix(8, 8);
  const float* before = matrix.data();

  matrix.Resize(2, 2);
  matrix.Resize(8, 8);

  EXPECT_EQ(matrix.data(), before);
}

TEST(MatrixView, SelectsRowsAndColumnsOfTheSameMemory) {
  Matrix<int> matrix(4, 6);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix.data()[i] = static_cast<int>(i);
  }

  const MatrixView<int> window = matrix.view().Rows(1, 2).Cols(2, 3);
  window(1, 2) = -1;

  EXPECT_EQ(window.rows(), 2u);
  EXPECT_EQ(window.cols(), 3u);
  EXPECT_EQ(window(0, 0), 8);
  EXPECT_EQ(matrix(2, 4), -1);
}

TEST(MatrixViewDeathTest, RefusesAWindowBeyondTheEnd) {
  Matrix<int> matrix(4, 6);

  EXPECT_DEATH(matrix.view().Rows(3, 2), "assertion");
}

}  // namespace
}  // namespace isoloss
