#include "isoloss/foreign/csv_rows.h"

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::foreign {

char SeparatorOf(std::string_view header) {
  char best = ',';
  for (const char c : {'\t', ';'}) {
    if (std::ranges::count(header, c) > std::ranges::count(header, best)) {
      best = c;
    }
  }
  return best;
}

bool CsvRows::Next(std::vector<std::string_view>& cells) {
  cells.clear();
  copies_.clear();
  if (rest_.empty()) return false;
  while (true) {
    cells.push_back(Cell());
    if (cells.size() > kMostColumns) {
      ThrowError(ErrorKind::kFormat,
                 "a row has more than {} cells, but no log has. Check the "
                 "file.",
                 kMostColumns);
    }
    if (rest_.empty()) return true;
    const char end = rest_.front();
    rest_.remove_prefix(1);
    if (end == separator_) {
      if (!rest_.empty()) continue;
      cells.emplace_back();
      return true;
    }
    if (end == '\r' && rest_.starts_with('\n')) rest_.remove_prefix(1);
    return true;
  }
}

std::string_view CsvRows::Cell() {
  if (rest_.starts_with('"')) return Quoted();
  size_t end = 0;
  while (end < rest_.size() && rest_[end] != separator_ && rest_[end] != '\n' &&
         rest_[end] != '\r') {
    ++end;
  }
  const std::string_view cell = rest_.substr(0, end);
  rest_.remove_prefix(end);
  return cell;
}

std::string_view CsvRows::Quoted() {
  rest_.remove_prefix(1);
  std::string cell;
  while (!rest_.empty()) {
    const size_t quote = rest_.find('"');
    cell += rest_.substr(0, quote);
    if (quote == std::string_view::npos) {
      rest_ = {};
      break;
    }
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    cell += '"';
    rest_.remove_prefix(1);
  }
  // Text between a closing quote and the separator is no part of the cell.
  while (!rest_.empty() && rest_.front() != separator_ &&
         rest_.front() != '\n' && rest_.front() != '\r') {
    rest_.remove_prefix(1);
  }
  return copies_.emplace_back(std::move(cell));
}

}  // namespace isoloss::foreign
