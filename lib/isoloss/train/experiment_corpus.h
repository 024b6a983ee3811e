// Finds the corpus that [data] names.
#pragma once

#include <map>
#include <string>

#include "isoloss/config/reader.h"
#include "isoloss/corpus/source.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// Returns the corpus::Source of experiment.data, checked against the model.
/// `fields` is [data]; `variables` are the folders for ${NAME} in its paths.
/// Errors   ConfigError for an unknown variable, no path, or a vocabulary that
///          does not hold the source's tokens.
corpus::Source MakeSource(const Experiment& experiment,
                          const config::Reader& fields,
                          const std::map<std::string, std::string>& variables);

}  // namespace isoloss::train
