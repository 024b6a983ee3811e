// Finds rows that are wrong as a whole, and the rows whose values they have.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/operations/explanation.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// Returns whether `rows` marks the row; a row beyond the end is not marked.
bool Marks(const std::vector<bool>& rows, size_t row);
/// Returns the rows that `rows` marks, ascending.
std::vector<size_t> MarkedRows(const std::vector<bool>& rows);

/// Returns "0, 1, 2", or the first eight and how many more there are.
std::string FirstFew(const std::vector<size_t>& places);

/// Returns "3 of 6 tokens have others: 0, 1, 2." for a tensor of 6 `rows`,
/// which `noun` calls tokens; "" if all rows are wrong, or none.
std::string PlacesOf(const oracle::Comparison& comparison, size_t rows,
                     const char* noun);

/// A tensor is given with the due value of each element.
struct ExpectedRows {
  using Use =
      std::function<void(size_t row, size_t column, const oracle::Estimate&)>;

  MatrixView<const float> found;
  oracle::Grid grid;
  std::function<void(const Use& use)> for_each;
  const char* noun;     ///< what a row is: "token"
  const char* content;  ///< what it holds: "scores"
};

/// Returns trials for `wrong` rows that are zero, or have the due values of
/// another row. Returns nothing if the tensor has so few columns that rows
/// agree by chance, or more than 2^22 elements.
std::vector<Trial> TrialsOfRows(const ExpectedRows& expected,
                                const std::vector<bool>& wrong);

}  // namespace isoloss::operations
