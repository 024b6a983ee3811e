// Says what every execution of a golden run must reproduce, and prints it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// A part is a dataset or attribute of a log, by the digest of its values.
struct ContentPart {
  std::string name;    ///< "/steps/loss_nats" or "final_weights_digest"
  std::string digest;  ///< 16 hexadecimal digits
  /// Attributes and columns of the graph describe the run, not its steps.
  bool describes_run = false;
  std::optional<double> number = {};  ///< of a real attribute
};

/// Returns everything that equal runs have in common. These are datasets,
/// except clocks and events (runlog::Field::reproducible), and attributes that
/// no build or machine changes. Parts without values are left out. So a column
/// that a later version brings changes nothing of an older log.
std::vector<ContentPart> ContentOf(const runlog::RunLog& log);

/// Returns the digest of ContentOf: equal content has an equal digest.
std::string ContentDigest(const runlog::RunLog& log);

/// Compares the content of a repeated run with that of the golden.
struct ContentDifference {
  /// Parts of the golden that differ in the run, or that the run lacks. If
  /// there is none, the golden is reproduced.
  std::vector<std::string> differing;
  /// Parts of `differing` that follow from the experiment alone, without regard
  /// to the rounding of sums. They are all that describes the run, except
  /// digests of weights and numerics, and whether it is complete. Real
  /// attributes may differ by 1e-9, as mathematical libraries do.
  std::vector<std::string> description;
  /// Parts that only the run has, because its program is newer.
  std::vector<std::string> added;
};

ContentDifference CompareContent(const runlog::RunLog& golden,
                                 const runlog::RunLog& run);

/// Writes the golden `name` as text, which shows in a review what changed. It
/// has the maker, all digests, and one line for each evaluation and step,
/// ascending. Each number is in hexadecimal (exact), and the loss also in
/// decimals.
std::string GoldenText(const runlog::RunLog& log, const std::string& name);

}  // namespace isoloss::compare
