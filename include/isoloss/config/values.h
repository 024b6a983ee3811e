// Defines the rules for values of TOML, and how values are spelled.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace isoloss::config {

inline constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

/// A set of numbers; bounds belong to it unless declared open. NaN is in none.
struct Interval {
  double low;
  double high;
  bool low_open = false;
  bool high_open = false;

  bool Contains(double value) const;
  std::string ToString() const;  ///< "(0, 1]"
};

constexpr Interval Open(double low, double high) {
  return {low, high, true, true};
}
constexpr Interval Closed(double low, double high) { return {low, high}; }

/// Returns "from 1 to 5", or "from 1" if `high` is kMaxInt.
std::string IntegersText(int64_t low, int64_t high);

/// Returns "from 1 (pairs)", or the text alone if there is no unit.
std::string WithUnit(std::string text, std::string_view unit);

/// Returns "a list of some of L0, L1, each once", or the word `none` if it is
/// given.
std::string WordsRule(std::span<const std::string> words,
                      std::string_view none);

/// Returns a string as TOML has it, on one line, in toml++'s own spelling.
std::string Quoted(std::string_view text);

/// Returns the shortest text that reads back to the same double and is a TOML
/// float: 1.0, 1e-08, inf, nan. toml++ writes 17 digits (0.0003 becomes
/// 0.00029999999999999997), but digests in logs are computed from the shortest
/// text.
std::string RealText(double value);

}  // namespace isoloss::config
