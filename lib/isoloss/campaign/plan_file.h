// Reads plan.toml of a folder that keeps the parts of a whole. The plan says
// what they are parts of.
#pragma once

#include <filesystem>
#include <string>

namespace isoloss::campaign {

inline constexpr const char* kPlanFile = "plan.toml";

/// Returns the keys and tables in which the plan of a file differs from that of
/// a text, divided by commas; "" if they say the same.
/// Errors   IoError if the file can't be read; ConfigError if it is no TOML.
std::string PlanDifference(const std::filesystem::path& file,
                           const std::string& plan);

}  // namespace isoloss::campaign
