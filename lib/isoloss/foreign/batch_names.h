// What a name says of a run's batches, by its words.
#pragma once

#include <string>
#include <string_view>

namespace isoloss::foreign {

inline constexpr std::string_view kEpochsSeen = "epochs seen";

struct BatchName {
  /// "global batch size", "samples seen", ...: what runs of a pair must share.
  /// Of a name that is not sure its own words; "" of one that says nothing.
  std::string fact;
  /// Each word of the name is known, so it means that and nothing else.
  bool sure = false;
  bool grows = false;  ///< counts what was seen so far
};

/// By the words of `name` ("train/consumed-samples", "nGPUs"), in any order.
/// Nothing is said by words of an evaluation, a rate or a clock, nor by what
/// one device takes at once, which may differ.
BatchName BatchNamed(std::string_view name);

/// Whether a word says that no training is meant: "inference", "benchmark".
bool SaysOtherPurpose(std::string_view name);

}  // namespace isoloss::foreign
