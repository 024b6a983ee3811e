// Names choices of GEMM sites that people quantise.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "isoloss/config/reader.h"

namespace isoloss::precision {

/// Holds the patterns as a Recipe has them.
struct SitePreset {
  std::string name;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::string source;
};

/// Returns all presets. The registered recipes have the first one.
std::span<const SitePreset> AllSitePresets();

/// Returns the preset that the key `sites` names, or null if there is no such
/// key.
/// Errors   ConfigError that lists the names and suggests the nearest.
const SitePreset* ReadSitePreset(config::Reader& fields);

}  // namespace isoloss::precision
