#include "isoloss/base/matrix.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace isoloss::matrix_test {
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

/// Memory of a device, as far as it can be told apart: elements are stored with
/// all bits inverted.
class InvertedMemory final : public Memory {
 public:
  bool is_host() const override { return false; }
  void* Allocate(size_t bytes) override { return kHostMemory.Allocate(bytes); }
  void Free(void* memory) noexcept override { kHostMemory.Free(memory); }
  void SetZero(void* memory, size_t bytes) override {
    std::memset(memory, 0xFF, bytes);
  }
  void Copy(const void* from, size_t bytes, void* to) override {
    std::memcpy(to, from, bytes);
  }
  void CopyToHost(const void* from, size_t bytes, void* host) override {
    for (size_t i = 0; i < bytes; ++i) {
      static_cast<uint8_t*>(host)[i] =
          static_cast<uint8_t>(~static_cast<const uint8_t*>(from)[i]);
    }
  }
  void CopyFromHost(const void* host, size_t bytes, void* to) override {
    CopyToHost(host, bytes, to);
  }
};

TEST(Matrix, LiesInTheMemoryThatItIsGiven) {
  InvertedMemory memory;
  Matrix<uint32_t> matrix(memory);
  matrix.Resize(2, 3);
  const uint32_t seven = 7;
  memory.CopyFromHost(&seven, sizeof(seven), &matrix(1, 2));
  Matrix<uint32_t> copy(memory);
  copy.CopyFrom(matrix);

  EXPECT_EQ(matrix(0, 0), 0xFFFFFFFFu);
  const HostRows<uint32_t> rows(copy.cview().Cols(1, 2), memory);
  EXPECT_EQ(rows.view()(0, 0), 0u);
  EXPECT_EQ(rows.view()(1, 1), 7u);
}

TEST(HostRows, OfTheHostsMemoryAreItsOwn) {
  const Matrix<float> matrix(2, 2);

  const HostRows<float> rows(matrix.view(), matrix.memory());

  EXPECT_EQ(rows.view().data(), matrix.data());
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
}  // namespace isoloss::matrix_test
