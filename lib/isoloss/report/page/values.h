// Writes values into the data of the report page, and keeps count of the bytes
// that are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/json.h"

namespace isoloss::report {

/// A whole page has at most this number of bytes.
inline constexpr size_t kMostPageBytes = 5'000'000;

/// The parts that are the same on every page (chart.js, style and scripts) have
/// at most this number of bytes. The rest is left to the data.
inline constexpr size_t kMostFrameBytes = 500'000;

/// All texts of logs have at most this number of bytes.
inline constexpr size_t kMostTextBytes = 600'000;

inline constexpr size_t kMostNotes = 40;

/// Returns Base64 of the values as little-endian float32. NaN and infinities
/// stay; a finite value beyond float32 becomes an infinity.
std::string Float32Base64(std::span<const double> values);
std::string Float32Base64(std::span<const int64_t> values);

/// Returns the float32 next to `value`, or null if it is not finite.
document::Json ShortNumber(double value);

/// Returns the object as 7-bit text in which `<`, `>` and `&` are escaped, so
/// that it may stand in an HTML element. Bytes that are no UTF-8 are replaced.
std::string PageJson(const document::Json& json);

/// Returns `text`, or if it has more than `bytes` its front and "[…]". Cuts no
/// code point.
std::string ClippedText(std::string_view text, size_t bytes);

/// Returns the places of at most `most` of `count` rows, evenly spread,
/// including the first and the last. `most` >= 2.
std::vector<size_t> SpreadRows(size_t count, size_t most);

/// Counts the room that is left for the data. Data that do not fit are left
/// out, and a note says so.
class PageBudget {
 public:
  explicit PageBudget(size_t bytes) : left_(bytes) {}

  size_t left() const { return left_; }

  /// Returns whether there was room for these bytes; they are then taken.
  bool Take(size_t bytes);
  /// Does the same for the bytes that PageJson makes of `json`.
  bool Take(const document::Json& json);
  /// Returns `json` if there is room; else null and a note that `what` was left
  /// out.
  document::Json Fit(document::Json json, const std::string& what);
  /// Returns ClippedText with as many bytes as there is room for, at most
  /// `most`. All texts together have at most kMostTextBytes.
  std::string Text(std::string_view text, size_t most = size_t{64} << 10);

  /// Adds a sentence for the reader of the page. Equal sentences are kept once,
  /// and at most kMostNotes in all.
  void Note(const std::string& sentence);
  /// Returns all notes, with spaces between them.
  std::string Notes() const;

 private:
  size_t left_;
  size_t text_left_ = kMostTextBytes;
  std::vector<std::string> notes_;
};

}  // namespace isoloss::report
