// Names the state that a restart lost, by what logs tell.
#pragma once

#include <string>
#include <vector>

#include "isoloss/certify/certificate.h"

namespace isoloss::certify {

/// A resumed run is compared with the whole one.
struct RestartCase {
  const runlog::RunLog& whole;
  const runlog::RunLog& resumed;
  /// The first step after the restart before the difference; 0: none is known.
  int64_t restart = 0;
  bool has_unknown_restart = false;
  /// The weights with which it began are known to be those of the checkpoint.
  bool has_equal_weights = false;
  std::string name = {};  ///< of the resumed run in sentences
};

/// Adds causes to a difference, or names the state by the step and the quantity
/// that differ first.
void AddRestartCauses(const RestartCase& given, Difference& difference);

}  // namespace isoloss::certify
