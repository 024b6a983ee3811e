// Named choices of GEMM sites that people quantise.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::precision {

/// Patterns as a Recipe has them.
struct SitePreset {
  std::string name;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::string source;
};

std::span<const SitePreset> AllSitePresets();

/// Errors   ConfigError that lists the names and suggests the nearest.
const SitePreset& SitePresetByName(std::string_view name);

}  // namespace isoloss::precision
