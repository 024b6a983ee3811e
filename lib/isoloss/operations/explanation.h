// Which of the known mistakes explains a tensor best.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// A tensor compared with what it would be by another computation.
struct Trial {
  std::string name;      ///< "scale_floor.x"
  std::string sentence;  ///< what was done, as a sentence without full stop
  /// Nothing: the mistake can't be made here.
  std::function<std::optional<oracle::Comparison>()> compare;
  /// Another right way to compute it: no mistake.
  bool is_right = false;
  /// The mistake in both operands, whose trials in one of them come first.
  bool in_both = false;
  /// It explains much that has other reasons: it counts only if none of the
  /// others explains nearly all.
  bool is_vague = false;
  /// Other small errors look alike: it is told as a possibility.
  bool is_guess = false;
};

struct Explanation {
  std::string name;
  std::string sentence;
  int64_t other = 0;  ///< elements that it leaves unexplained
  int64_t flips = 0;
  /// The next best one; "": there was none that explains anything.
  std::string runner_up = {};
  int64_t runner_up_other = 0;
  /// The next best one explains about as much.
  bool is_ambiguous = false;
  bool is_guess = false;
};

/// One tensor of one operation.
struct Finding {
  size_t file = 0;
  size_t operation = 0;
  std::string type = {};
  std::string module = {};
  std::string part = {};    ///< "fprop", "fprop_x codes", "scores", ...
  std::string tensor = {};  ///< "<module>_<kind>", as probe logs name it
  oracle::Comparison comparison;
  std::optional<Explanation> explanation = {};
  /// Which mistakes were not tried, in whole sentences.
  std::string untried = {};
  /// What else is known of elements that are wrong, in whole sentences.
  std::string remark = {};
  /// Which rows have others, as a sentence; "": all of them, or it has no rows.
  std::string places = {};
  /// The same operation one step earlier was at hand, for what is stale, or no
  /// trial looks at it.
  bool knows_previous = false;

  bool is_right() const { return comparison.other() == 0; }
};

/// Tries all if `finding` has others: takes the comparison of a right way that
/// explains all of them, else keeps the best explanation, if it explains at
/// least half of them. It is ambiguous unless it leaves none and the next one
/// some, or the next one leaves a tenth of them more unexplained, or needs
/// several times as many flips. `further` trials are made only where these
/// leave others.
void Explain(const std::vector<Trial>& trials, Finding& finding,
             const std::function<std::vector<Trial>()>& further = nullptr);

}  // namespace isoloss::operations
