// Compares many rows with what other tools computed, and makes sure that they
// really were compared.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "isoloss/base/matrix.h"
#include "support/h5_file.h"

namespace isoloss::formats {

inline isoloss::test_support::H5File OpenVectors(const std::string& name) {
  return isoloss::test_support::H5File(
      isoloss::test_support::GoldenPath("vectors", name));
}

/// Names of the groups directly below `parent` ("" for the root) that begin
/// with `prefix`.
inline std::set<std::string> Groups(const isoloss::test_support::H5File& file,
                                    const std::string& parent,
                                    const std::string& prefix) {
  std::set<std::string> groups;
  for (const std::string& dataset : file.DatasetsBelow("/" + parent)) {
    const size_t first = dataset.find_first_not_of('/', parent.size() + 1);
    const std::string group =
        dataset.substr(first, dataset.find('/', first) - first);
    if (group.starts_with(prefix)) groups.insert(group);
  }
  return groups;
}

/// Counts rows, prints the first few that differ.
class Comparison {
 public:
  /// describe() says what the row is; it is called for a difference only.
  template <typename Describe>
  void Row(bool equal, const Describe& describe) {
    ++rows_;
    if (equal) return;
    if (++different_ <= kPrinted) ADD_FAILURE() << describe();
  }

  /// Fails unless exactly `rows` > 0 rows were compared and all were equal.
  void ExpectAllEqual(size_t rows) const {
    EXPECT_GT(rows, 0u);
    EXPECT_EQ(rows_, rows);
    EXPECT_EQ(different_, 0u);
  }

 private:
  static constexpr size_t kPrinted = 5;

  size_t rows_ = 0;
  size_t different_ = 0;
};

/// Equal bits. NaNs in the files are canonical, and so must ours be.
inline bool SameBits(float expected, float actual) {
  return std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(actual);
}
template <std::integral Code>
bool SameBits(Code expected, Code actual) {
  return expected == actual;
}

inline MatrixView<const float> View(
    const isoloss::test_support::H5Array<float>& array) {
  return {array.values.data(), array.rows(), array.cols()};
}

/// Compares the elements for which applies(row, col) with a dataset of the same
/// shape, by same(expected, actual).
template <typename T, typename Applies, typename Same>
void ExpectMatrix(const isoloss::test_support::H5File& file,
                  const std::string& dataset, const Matrix<T>& actual,
                  const Applies& applies, const Same& same) {
  SCOPED_TRACE(dataset);
  const auto expected = file.Read<T>(dataset);
  ASSERT_EQ(expected.rows(), actual.rows());
  ASSERT_EQ(expected.cols(), actual.cols());
  size_t applicable = 0;
  Comparison comparison;
  for (size_t row = 0; row < actual.rows(); ++row) {
    for (size_t col = 0; col < actual.cols(); ++col) {
      if (!applies(row, col)) continue;
      ++applicable;
      const T wanted = expected.values[row * actual.cols() + col];
      comparison.Row(same(wanted, actual(row, col)), [&] {
        return fmt::format("[{}, {}]: {}, but {} was expected", row, col,
                           actual(row, col), wanted);
      });
    }
  }
  comparison.ExpectAllEqual(applicable);
}

/// Compares the bits of the elements for which applies(row, col).
template <typename T, typename Applies>
void ExpectMatrix(const isoloss::test_support::H5File& file,
                  const std::string& dataset, const Matrix<T>& actual,
                  const Applies& applies) {
  ExpectMatrix(file, dataset, actual, applies,
               [](T expected, T got) { return SameBits(expected, got); });
}

/// Compares the bits of all elements.
template <typename T>
void ExpectMatrix(const isoloss::test_support::H5File& file,
                  const std::string& dataset, const Matrix<T>& actual) {
  ExpectMatrix(file, dataset, actual, [](size_t, size_t) { return true; });
}

/// Compares values: zeros of either sign are equal. For microxcaling, which
/// loses the sign of zero.
inline void ExpectMatrixValues(const isoloss::test_support::H5File& file,
                               const std::string& dataset,
                               const Matrix<float>& actual) {
  ExpectMatrix(
      file, dataset, actual, [](size_t, size_t) { return true; },
      [](float expected, float got) { return expected == got; });
}

}  // namespace isoloss::formats
