// Finds what the words of a name say of a run's batches.
#pragma once

#include <string>
#include <string_view>

namespace isoloss::foreign {

inline constexpr std::string_view kEpochsSeen = "epochs seen";

struct BatchName {
  /// This is "global batch size", "samples seen", ...: what runs of a pair must
  /// share. If the name is not sure, it is the name's own words; if the name
  /// says nothing, it is "".
  std::string fact;
  /// Each word of the name is known, so the name means this fact and nothing
  /// else.
  bool sure = false;
  bool grows = false;  ///< counts what was seen so far
};

/// Interprets the words of `name` ("train/consumed-samples", "nGPUs") in any
/// order. Words of an evaluation, a rate or a clock say nothing. What one
/// device takes at once says nothing either, because it may differ.
BatchName BatchNamed(std::string_view name);

/// Returns whether a word says that no training is meant: "inference",
/// "benchmark".
bool SaysOtherPurpose(std::string_view name);

}  // namespace isoloss::foreign
