#include "isoloss/campaign/experiment_source.h"

namespace isoloss::campaign {

train::Experiment ExperimentSource::Load() const {
  train::ExperimentInputs inputs;
  inputs.variables = {{"EIGEN3_INCLUDE_DIR", ISOLOSS_EIGEN3_INCLUDE_DIR}};
  inputs.overrides = overrides;
  return train::LoadExperiment(file, inputs);
}

}  // namespace isoloss::campaign
