// Which experiment, with what overridden.
#pragma once

#include <string>
#include <vector>

#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

struct ExperimentSource {
  std::string file;
  /// "section.key=value" each.
  std::vector<std::string> overrides = {};

  /// Errors   as train::LoadExperiment.
  train::Experiment Load() const;
};

}  // namespace isoloss::campaign
