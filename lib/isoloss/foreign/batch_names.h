// Finds what the words of a name say of a run's batches.
#pragma once

#include <string>
#include <string_view>

namespace isoloss::foreign {

inline constexpr std::string_view kEpochsSeen = "epochs seen";

struct BatchName {
  /// Runs of a pair must share this fact: "global batch size", "samples seen",
  /// ... If the name is not sure, the fact is the name's own words; "" if the
  /// name says nothing.
  std::string fact;
  /// Each word of the name is known, so it means this fact and nothing else.
  bool sure = false;
  bool grows = false;  ///< counts what was seen so far
};

/// Interprets the words of `name` ("train/consumed-samples", "nGPUs") in any
/// order. Words of an evaluation, a rate or a clock say nothing. What one
/// device takes at once says nothing either, because it may differ.
BatchName BatchNamed(std::string_view name);

/// Returns whether a word means no training: "inference", "benchmark".
bool SaysOtherPurpose(std::string_view name);

}  // namespace isoloss::foreign
