// Finds the known mistake that explains a tensor best.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/operations/deviations.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// A trial compares a tensor with the result of another computation.
struct Trial {
  std::string name;      ///< "scale_floor.x"
  std::string sentence;  ///< what was done, as a sentence without full stop
  /// Returns nothing if the mistake can't be made here.
  std::function<std::optional<oracle::Comparison>()> compare;
  /// It is a second right way to compute the tensor, and no mistake.
  bool is_right = false;
  /// The mistake is made in both operands; its trials in one come first.
  bool in_both = false;
  /// It explains many errors that have another reason. So it counts only if no
  /// trial that is not vague explains nearly all of them.
  bool is_vague = false;
  /// Small errors of another kind look the same, so it is only a possibility.
  bool is_guess = false;
};

struct Explanation {
  std::string name;
  std::string sentence;
  int64_t other = 0;  ///< elements that it leaves unexplained
  int64_t flips = 0;
  /// The next best trial; "" if there is none that explains anything.
  std::string runner_up = {};
  int64_t runner_up_other = 0;
  /// The next best trial explains about as much.
  bool is_ambiguous = false;
  bool is_guess = false;
};

/// A finding is about one tensor of one operation.
struct Finding {
  size_t file = 0;
  size_t operation = 0;
  std::string type = {};
  std::string module = {};
  std::string part = {};    ///< "fprop", "fprop_x codes", "scores", ...
  std::string tensor = {};  ///< "<module>_<kind>", as probe logs name it
  oracle::Comparison comparison;
  std::optional<Explanation> explanation = {};
  /// Whole sentences say which mistakes were not tried.
  std::string untried = {};
  /// Whole sentences say what is known of wrong elements besides.
  std::string remark = {};
  /// Says why nothing was compared, as a sentence without full stop; "": it
  /// was.
  std::string open = {};
  /// A sentence says which rows have wrong elements; "": all, or no rows.
  std::string places = {};
  /// The same operation one step earlier was given, for stale values, or no
  /// trial looks at it.
  bool knows_previous = false;
  /// The arithmetic that predicts the bits of a product; "" if none does.
  std::string sums = {};
  /// Others that predict as much, as far as a few elements tell.
  std::vector<std::string> sums_alike = {};
  /// The product has sums in an order that is not known, though bits of others
  /// of the files were predicted, or several ranks hold parts of it.
  bool has_unknown_order = false;
  /// Then it is judged as sums that lose as many bits as these tensor cores do;
  /// "": as FP32 sums in any order.
  std::string coarse_cores = {};
  /// Or as sums of so many rounded parts, which several ranks hold; 0: no.
  size_t rounded_parts = 0;
  /// Elements with other bits than predicted; null if no bits are.
  std::shared_ptr<const Deviations> deviations = {};
  /// These have a pattern, or are few, and no mistake explains them.
  bool looks_sick = false;

  bool is_right() const { return comparison.other() == 0; }
};

/// Tries all trials if `finding` has wrong elements. A right way that explains
/// all of them replaces its comparison. Else the best explanation is kept, if
/// it explains at least half of them. It is ambiguous, with three exceptions:
/// it leaves none and the next best leaves some; the next best leaves a tenth
/// of them more; the next best needs several times more flips. `further` trials
/// are only made if `trials` leave wrong elements.
void Explain(const std::vector<Trial>& trials, Finding& finding,
             const std::function<std::vector<Trial>()>& further = nullptr);

}  // namespace isoloss::operations
