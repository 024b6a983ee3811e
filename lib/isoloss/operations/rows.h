// Results that are wrong in whole rows: which, and whose they are.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/operations/explanation.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// "0, 1, 2", or the first eight and how many more there are.
std::string FirstFew(const std::vector<size_t>& places);

/// "3 of 6 tokens have others: 0, 1, 2." of a tensor with so many `rows`, which
/// are `tokens`; "" if all have, or none.
std::string PlacesOf(const oracle::Comparison& comparison, size_t rows,
                     const char* noun);

/// Of a tensor and what each of its elements should be.
struct ExpectedRows {
  using Use =
      std::function<void(size_t row, size_t column, const oracle::Estimate&)>;

  MatrixView<const float> found;
  oracle::Grid grid;
  std::function<void(const Use& use)> for_each;
  const char* noun;     ///< what a row is: "token"
  const char* content;  ///< what it holds: "scores"
};

/// `wrong` rows that are zero, or what other rows should be. Nothing of tensors
/// of so few columns that rows agree by chance, or of more than 2^22 elements.
std::vector<Trial> TrialsOfRows(const ExpectedRows& expected,
                                const std::vector<bool>& wrong);

}  // namespace isoloss::operations
