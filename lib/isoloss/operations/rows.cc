#include "isoloss/operations/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// An element may be any number of this range.
struct Range {
  float low = 0.0f;
  float high = 0.0f;

  bool Has(float value) const {
    return (low <= value && value <= high) ||
           (std::isnan(low) && std::isnan(value));
  }
};

class RowSearch {
 public:
  explicit RowSearch(const ExpectedRows& expected)
      : found_(expected.found),
        ranges_(found_.rows() * found_.cols()),
        from_(found_.rows()) {
    expected.for_each([&](size_t row, size_t column, const Estimate& value) {
      ranges_[row * found_.cols() + column] = {
          RoundTo(expected.grid, value.exact - value.bound),
          RoundTo(expected.grid, value.exact + value.bound)};
    });
    for (size_t r = 0; r < from_.size(); ++r) from_[r] = r;
  }

  /// Finds every wrong row's place, as long as the budget lasts.
  void Find(const std::vector<bool>& wrong) {
    for (size_t r = 0; r < wrong.size() && left_ > 0; ++r) {
      if (!wrong[r]) continue;
      const float* row = found_.Row(r);
      if (std::all_of(row, row + found_.cols(),
                      [](float v) { return v == 0.0f; })) {
        from_[r] = kZero;
        zeros_.push_back(r);
        continue;
      }
      for (size_t other = 0; other < from_.size(); ++other) {
        if (!Is(r, other)) continue;
        from_[r] = other;
        places_.push_back(r);
        owners_.push_back(other);
        break;
      }
    }
  }

  std::string Sentence(const ExpectedRows& expected) const {
    std::vector<std::string> parts;
    if (!places_.empty()) {
      const char* s = places_.size() == 1 ? "" : "s";
      parts.push_back(fmt::format("in {0}{1} {2} stand the {3} of {0}{1} {4}",
                                  expected.noun, s, FirstFew(places_),
                                  expected.content, FirstFew(owners_)));
    }
    if (!zeros_.empty()) {
      parts.push_back(fmt::format(
          "the {} of {}{} {} are zero", expected.content, expected.noun,
          zeros_.size() == 1 ? "" : "s", FirstFew(zeros_)));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
  }
  bool moves() const { return !places_.empty(); }

  Comparison Compare(Grid grid) const {
    Comparison comparison(grid);
    for (size_t r = 0; r < from_.size(); ++r) {
      for (size_t c = 0; c < found_.cols(); ++c) {
        const float value = found_(r, c);
        const Range range =
            from_[r] == kZero ? Range{} : ranges_[from_[r] * found_.cols() + c];
        if (range.Has(value)) {
          comparison.AddExact(r, c, value, value);
        } else {
          comparison.AddOther(r, c, value, static_cast<double>(range.low));
        }
      }
    }
    return comparison;
  }

 private:
  static constexpr size_t kZero = SIZE_MAX;

  bool Is(size_t row, size_t other) {
    for (size_t c = 0; c < found_.cols(); ++c) {
      if (--left_ < 0 ||
          !ranges_[other * found_.cols() + c].Has(found_(row, c))) {
        return false;
      }
    }
    return true;
  }

  MatrixView<const float> found_;
  std::vector<Range> ranges_;
  std::vector<size_t> from_;
  std::vector<size_t> places_ = {};
  std::vector<size_t> owners_ = {};
  std::vector<size_t> zeros_ = {};
  int64_t left_ = int64_t{1} << 26;
};

}  // namespace

bool Marks(const std::vector<bool>& rows, size_t row) {
  return row < rows.size() && rows[row];
}

std::vector<size_t> MarkedRows(const std::vector<bool>& rows) {
  std::vector<size_t> places;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r]) places.push_back(r);
  }
  return places;
}

std::string FirstFew(const std::vector<size_t>& places) {
  constexpr size_t kFew = 8;
  const std::vector<size_t> few(
      places.begin(),
      places.begin() + static_cast<ptrdiff_t>(std::min(places.size(), kFew)));
  return places.size() <= kFew
             ? fmt::format("{}", fmt::join(few, ", "))
             : fmt::format("{} and {} more", fmt::join(few, ", "),
                           places.size() - kFew);
}

std::string PlacesOf(const oracle::Comparison& comparison, size_t rows,
                     const char* noun) {
  const std::vector<size_t> wrong = MarkedRows(comparison.wrong_rows());
  if (wrong.empty() || wrong.size() >= rows) return "";
  const auto whole = static_cast<int64_t>(wrong.size()) *
                     (comparison.elements() / static_cast<int64_t>(rows));
  return fmt::format("{} of {} {} have others{}: {}.", wrong.size(), rows, noun,
                     comparison.other() == whole ? ", in every element" : "",
                     FirstFew(wrong));
}

std::vector<Trial> TrialsOfRows(const ExpectedRows& expected,
                                const std::vector<bool>& wrong) {
  constexpr size_t kMostElements = size_t{1} << 22;
  // Four columns of 8 bits tell a row; in FP32, two are enough.
  const size_t fewest = expected.grid == Grid::kFp32 ? 2 : 4;
  const size_t cols = expected.found.cols();
  if (cols < fewest || expected.found.rows() < 2 ||
      expected.found.rows() > kMostElements / cols) {
    return {};
  }
  auto search = std::make_shared<RowSearch>(expected);
  search->Find(wrong);
  std::string sentence = search->Sentence(expected);
  if (sentence.empty()) return {};
  return {{.name = search->moves() ? "wrong_rows" : "rows_zero",
           .sentence = std::move(sentence),
           .compare = [search, grid = expected.grid] {
             return std::optional(search->Compare(grid));
           }}};
}

}  // namespace isoloss::operations
