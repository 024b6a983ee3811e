// How values stand in the data of the report page, and how many bytes of it are
// left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/json.h"

namespace isoloss::report {

/// Bytes of all of a page.
inline constexpr size_t kMostPageBytes = 5'000'000;

/// Those of what is the same on every page: chart.js, style and scripts. The
/// rest is left to the data.
inline constexpr size_t kMostFrameBytes = 500'000;

/// Those of all texts of logs.
inline constexpr size_t kMostTextBytes = 600'000;

inline constexpr size_t kMostNotes = 40;

/// Base64 of the values as little-endian float32. NaN and infinities stay what
/// they are; a finite value beyond float32 becomes an infinity.
std::string Float32Base64(std::span<const double> values);
std::string Float32Base64(std::span<const int64_t> values);

/// The float32 next to `value`, or null if it is not finite.
document::Json ShortNumber(double value);

/// The object as 7-bit text in which `<`, `>` and `&` are escaped, so that it
/// may stand in an HTML element. Bytes that are no UTF-8 are replaced.
std::string PageJson(const document::Json& json);

/// `text`, or if it has more than `bytes` its front and "[…]". Cuts no code
/// point.
std::string ClippedText(std::string_view text, size_t bytes);

/// Places of at most `most` of `count` rows, evenly spread, the first and the
/// last among them. `most` >= 2.
std::vector<size_t> SpreadRows(size_t count, size_t most);

/// What the data may still take. What does not fit is left out, and said.
class PageBudget {
 public:
  explicit PageBudget(size_t bytes) : left_(bytes) {}

  size_t left() const { return left_; }

  /// Whether there was room for so many bytes; they are then taken.
  bool Take(size_t bytes);
  /// Likewise for what PageJson makes of `json`.
  bool Take(const document::Json& json);
  /// `json` if there is room; else null and a note that `what` was left out.
  document::Json Fit(document::Json json, const std::string& what);
  /// ClippedText to what there is room for, at most `most` bytes and
  /// kMostTextBytes with all others.
  std::string Text(std::string_view text, size_t most = size_t{64} << 10);

  /// A sentence for the reader of the page; the same one is kept once, and no
  /// more than kMostNotes.
  void Note(const std::string& sentence);
  /// All of them, between spaces.
  std::string Notes() const;

 private:
  size_t left_;
  size_t text_left_ = kMostTextBytes;
  std::vector<std::string> notes_;
};

}  // namespace isoloss::report
