// Splits a table into rows of cells as text.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::foreign {

inline constexpr size_t kMostColumns = 100'000;

/// Returns comma, tab or semicolon: the one that is most frequent in `header`.
char SeparatorOf(std::string_view header);

/// Reads the cells of one row after another.
class CsvRows {
 public:
  CsvRows(std::string_view text, char separator)
      : rest_(text), separator_(separator) {}

  /// Returns false at the end. Cells point into the text. Cells with doubled
  /// quotes point into copies that live until the next row.
  /// Errors   FormatError if a row has more than kMostColumns cells.
  bool Next(std::vector<std::string_view>& cells);

 private:
  std::string_view Cell();
  std::string_view Quoted();

  std::string_view rest_;
  char separator_;
  std::list<std::string> copies_;
};

}  // namespace isoloss::foreign
