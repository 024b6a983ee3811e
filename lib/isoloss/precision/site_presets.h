// Named choices of GEMM sites that people quantise.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "isoloss/config/reader.h"

namespace isoloss::precision {

/// Patterns as a Recipe has them.
struct SitePreset {
  std::string name;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::string source;
};

/// The first is that of the registered recipes.
std::span<const SitePreset> AllSitePresets();

/// The one that the key `sites` names; null if there is no such key.
/// Errors   ConfigError that lists the names and suggests the nearest.
const SitePreset* ReadSitePreset(config::Reader& fields);

}  // namespace isoloss::precision
